// V-Smooth state: what one attention layer carries from one denoising step to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace vcattn {

/// When V is clustered and demeaned over the denoising steps. During the first
/// ceil(window * steps) steps the grouping is recomputed every `refresh` steps (centroids
/// warm-started); afterwards calls run on the permutation left behind. Source: VC-Attention (arXiv
/// 2609.15810), section on scheduling; there, means are taken out inside the window only.
struct VSmoothSchedule {
  int steps = 1;
  double window = 0.25;
  int refresh = 4;
  bool means_after_window = true;  ///< false: as in the paper

  friend bool operator==(const VSmoothSchedule&, const VSmoothSchedule&) = default;
};

/// What a call at some step does.
struct VSmoothAction {
  bool regroup = true;    ///< run k-means and sort before this call
  bool demean = true;     ///< subtract and restore block means in this call
  bool in_window = true;  ///< a grouping of other keys than this call's would be replaced
};

/// Permutation, centroids and schedule of ONE layer (and one guidance branch). The caller owns it,
/// announces each step with `begin_step` and passes it to the call. It never hides in a cache, is
/// not shared between threads while a call runs, and holds memory of the device it was used on. A
/// call without a state is self-contained: it groups and demeans by itself.
class VSmoothState {
 public:
  /// Groups at every call, warm-started: for callers without a notion of steps.
  VSmoothState() = default;
  /// Throws Error if steps < 1, window is outside [0, 1] or refresh < 1.
  explicit VSmoothState(const VSmoothSchedule& schedule);

  /// Announces denoising step `step` (0-based). Throws Error if it is outside the schedule.
  void begin_step(int step);

  int step() const { return step_; }
  const VSmoothSchedule& schedule() const { return schedule_; }

  /// What the next call does, given that it has (or lacks) a usable grouping of its shape.
  VSmoothAction next_action(bool has_grouping) const;

  /// Forgets the grouping (a new clip); keeps the schedule.
  void reset();

  /// The grouping of every (batch entry or segment, KV head), in the memory of the backend that
  /// made it. The accessors copy to the host, for inspection.
  class Grouping {
   public:
    virtual ~Grouping() = default;
    /// Position -> original key index; the hidden keys do not appear.
    virtual std::vector<std::int32_t> permutation(std::int64_t entry, std::int64_t head) const = 0;
    /// (clusters, d), row-major.
    virtual std::vector<float> centroids(std::int64_t entry, std::int64_t head) const = 0;

   protected:
    /// Throws Error unless 0 <= entry < entries and 0 <= head < heads.
    static void require_task(std::int64_t entry, std::int64_t entries, std::int64_t head,
                             std::int64_t heads);
  };
  const std::shared_ptr<Grouping>& grouping() const { return grouping_; }
  void set_grouping(std::shared_ptr<Grouping> grouping);

 private:
  VSmoothSchedule schedule_{.steps = 1, .window = 1.0, .refresh = 1};
  bool scheduled_ = false;
  int step_ = 0;
  int grouped_at_ = -1;  ///< step of the current grouping; -1: none
  std::shared_ptr<Grouping> grouping_;
};

}  // namespace vcattn
