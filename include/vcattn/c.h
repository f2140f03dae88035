/* The C interface of libvcattn: what other languages load. Plain C99, versioned, no exceptions.
 *
 * Every function that can fail returns a vcattn_status; the message of the last failure in the
 * calling thread is vcattn_last_error(). Text that a function hands out belongs to the library and
 * stays valid until the next vcattn call in the same thread. Nothing here prints or exits.
 *
 * Versioning: structures only grow at their end and begin with their own size as the caller
 * compiled it, so a library reads older callers. VCATTN_ABI_VERSION changes only when an existing
 * field or function changes its meaning; a caller compares it with vcattn_abi_version(). */
#ifndef VCATTN_C_H_
#define VCATTN_C_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(VCATTN_BUILDING_LIBRARY)
#define VCATTN_API __declspec(dllexport)
#else
#define VCATTN_API __declspec(dllimport)
#endif
#else
#define VCATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define VCATTN_ABI_VERSION 2

typedef enum vcattn_status {
  VCATTN_OK = 0,
  VCATTN_INVALID_ARGUMENT = 1, /* nothing could accept it */
  VCATTN_UNSUPPORTED = 2,      /* well formed, but not by this build, device or recipe */
  VCATTN_OUT_OF_MEMORY = 3,
  VCATTN_IO = 4,
  VCATTN_DEVICE = 5,
  VCATTN_INTERNAL = 6 /* a defect of the library */
} vcattn_status;

typedef enum vcattn_dtype {
  VCATTN_F32 = 0,
  VCATTN_F16 = 1,
  VCATTN_BF16 = 2,
  VCATTN_BOOL = 3 /* one byte an element, masks only */
} vcattn_dtype;

typedef enum vcattn_device { VCATTN_CPU = 0, VCATTN_CUDA = 1 } vcattn_device;

typedef enum vcattn_backend {
  VCATTN_AUTO = 0,
  VCATTN_USE_CPU = 1,
  VCATTN_USE_CUDA = 2
} vcattn_backend;

typedef enum vcattn_rope_layout { VCATTN_INTERLEAVED = 0, VCATTN_HALF = 1 } vcattn_rope_layout;

/* A strided view. The axes are always (batch, heads, tokens, d), whatever their order in memory;
 * strides count elements, may be 0 and need not be dense in any axis. */
typedef struct vcattn_tensor {
  void* data;
  int32_t dtype; /* vcattn_dtype */
  int64_t shape[4];
  int64_t stride[4];
} vcattn_tensor;

/* Rotary tables applied inside the call: dense float32 (tokens, pairs). cos == NULL: none. */
typedef struct vcattn_rope {
  const float* cos;
  const float* sin;
  int64_t tokens;
  int64_t pairs;
  int32_t layout; /* vcattn_rope_layout */
} vcattn_rope;

/* Packed sequences: count + 1 offsets in host memory, on CUDA too. offsets == NULL: none. */
typedef struct vcattn_segments {
  const int32_t* offsets;
  int64_t count;
} vcattn_segments;

/* Workspace memory on CUDA; allocate returns NULL when there is none. allocate == NULL: the
 * library's own stream-ordered allocation. */
typedef struct vcattn_allocator {
  void* (*allocate)(void* context, size_t bytes, void* stream);
  void (*deallocate)(void* context, void* pointer, void* stream);
  void* context;
} vcattn_allocator;

/* One call. Zero-initialize it, set struct_size = sizeof(vcattn_arguments), then the fields in
 * use. Meanings, supported ranges and the treatment of empty and non-finite input are those of
 * vcattn::Arguments (vcattn/arguments.h). Key lengths lie in the tensors' memory. */
typedef struct vcattn_arguments {
  size_t struct_size;
  vcattn_tensor q, k, v, out;
  float* lse; /* natural log, float32; NULL: not wanted */
  int64_t lse_stride[3];
  int32_t has_scale; /* 0: d^-0.5 */
  float scale;
  int32_t causal; /* bottom-right aligned */
  int32_t has_mask;
  vcattn_tensor mask;         /* broadcastable; bool (true = visible) or added to the scores */
  const int32_t* key_lengths; /* one per batch entry; NULL: all keys */
  vcattn_segments q_segments, k_segments;
  vcattn_rope q_rope, k_rope;
  int32_t device; /* vcattn_device */
  int32_t device_index;
  void* stream; /* cudaStream_t */
  vcattn_allocator allocator;
} vcattn_arguments;

typedef struct vcattn_recipe vcattn_recipe; /* how to compute */
typedef struct vcattn_state vcattn_state;   /* V-Smooth state of one layer */

VCATTN_API uint32_t vcattn_abi_version(void);
VCATTN_API const char* vcattn_version(void);
VCATTN_API size_t vcattn_arguments_size(void);

/* Message of the last failure in this thread, "" if there was none; never NULL. */
VCATTN_API const char* vcattn_last_error(void);
/* The argument, field or file that failure is about. */
VCATTN_API const char* vcattn_last_error_where(void);

/* The named recipes, and one line on each; NULL past the end. */
VCATTN_API const char* vcattn_recipe_name(size_t index);
VCATTN_API const char* vcattn_recipe_summary(size_t index);

VCATTN_API vcattn_status vcattn_recipe_create(const char* name, vcattn_recipe** recipe);
VCATTN_API vcattn_status vcattn_recipe_set(vcattn_recipe* recipe, const char* field,
                                           const char* value);
/* Field `index` of the recipe and its value as text; VCATTN_INVALID_ARGUMENT past the end. */
VCATTN_API vcattn_status vcattn_recipe_field(const vcattn_recipe* recipe, size_t index,
                                             const char** field, const char** value);
VCATTN_API void vcattn_recipe_destroy(vcattn_recipe* recipe);

/* State that groups at every call, for callers without denoising steps. */
VCATTN_API vcattn_status vcattn_state_create(vcattn_state** state);
/* State under a schedule: grouping every `refresh` of the first ceil(window * steps) steps; means
 * in all steps, or only in those if means_after_window is 0. */
VCATTN_API vcattn_status vcattn_state_create_scheduled(int32_t steps, double window,
                                                       int32_t refresh, int32_t means_after_window,
                                                       vcattn_state** state);
VCATTN_API vcattn_status vcattn_state_begin_step(vcattn_state* state, int32_t step);
/* Forgets the grouping (a new clip), keeps the schedule. */
VCATTN_API vcattn_status vcattn_state_reset(vcattn_state* state);
/* What the next call does (0 or 1 each). */
VCATTN_API vcattn_status vcattn_state_action(const vcattn_state* state, int32_t* regroup,
                                             int32_t* demean);
/* Position -> key index of a (batch entry or segment, KV head), copied to the host. `count` takes
 * the capacity of `keys` and returns the length; keys == NULL asks for the length only. The length
 * is 0 while nothing is grouped. */
VCATTN_API vcattn_status vcattn_state_permutation(const vcattn_state* state, int64_t entry,
                                                  int64_t head, int32_t* keys, size_t* count);
VCATTN_API void vcattn_state_destroy(vcattn_state* state);

/* Computes; on CUDA it returns when the work is enqueued. state may be NULL (self-contained). */
VCATTN_API vcattn_status vcattn_attention(const vcattn_arguments* arguments,
                                          const vcattn_recipe* recipe, vcattn_backend backend,
                                          vcattn_state* state);
/* Whether the call can run: fails with the reason why not. Computes nothing. */
VCATTN_API vcattn_status vcattn_can_use(const vcattn_arguments* arguments,
                                        const vcattn_recipe* recipe, vcattn_backend backend);
/* The kernel that would run, and what it does and why, one sentence a line. */
VCATTN_API vcattn_status vcattn_explain(const vcattn_arguments* arguments,
                                        const vcattn_recipe* recipe, vcattn_backend backend,
                                        const char** kernel, const char** text);

typedef struct vcattn_backend_info {
  const char* name;
  int32_t available;
  const char* status;  /* devices, or why it cannot be used */
  const char* kernels; /* one a line */
} vcattn_backend_info;

/* Backend `index` of this build; VCATTN_INVALID_ARGUMENT past the end. */
VCATTN_API vcattn_status vcattn_backend_at(size_t index, vcattn_backend_info* info);

#ifdef __cplusplus
}
#endif

#endif
