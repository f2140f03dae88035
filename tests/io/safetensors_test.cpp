// Round trips through files, what is read lazily, and files that cannot be written.
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/atomic_file.h"
#include "safetensors_image.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "vcattn-io-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const std::string& name) const { return folder_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static std::string message(const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  fs::path folder_;
};

TEST_F(Files, RoundTripKeepsTensorsAndMetadata) {
  const std::array<float, 6> q{1, 2, 3, 4, 5, 6};
  const std::array<std::uint8_t, 3> flags{1, 0, 1};
  const std::array<std::int64_t, 1> lengths{7};
  write_safetensors(path("a.safetensors"),
                    {{"flags", "BOOL", {3}, std::as_bytes(std::span(flags))},
                     {"q", "F32", {1, 2, 3}, std::as_bytes(std::span(q))},
                     {"empty", "F16", {0, 4}, {}},
                     {"scalar", "I64", {}, std::as_bytes(std::span(lengths))}},
                    {{"layout", "BSHD"}, {"note", "line\nbreak \"quoted\" \xC3\xA9"}});
  const auto file = SafetensorsFile::open(path("a.safetensors"));
  EXPECT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.metadata().at("layout"), "BSHD");
  EXPECT_EQ(file.metadata().at("note"), "line\nbreak \"quoted\" \xC3\xA9");
  const TensorEntry& entry = file.at("q");
  EXPECT_EQ(entry.dtype, "F32");
  EXPECT_EQ(entry.shape, (std::vector<std::int64_t>{1, 2, 3}));
  ASSERT_EQ(entry.bytes.size(), sizeof(q));
  EXPECT_EQ(std::memcmp(entry.bytes.data(), q.data(), sizeof(q)), 0);
  EXPECT_TRUE(file.at("empty").bytes.empty());
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, UnknownDtypeIsAnErrorOnlyWhenAskedFor) {
  const std::string image = image_of(R"({"new":{"dtype":"F3","shape":[5],"data_offsets":[0,2]},)"
                                     R"("old":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                     "abc");
  const auto file = SafetensorsFile::parse(bytes_of(image), "mixed");
  EXPECT_EQ(file.at("old").bytes.size(), 1U);
  EXPECT_EQ(message([&] { file.at("new"); }), "mixed: tensor 'new': unknown dtype 'F3'");
}

TEST_F(Files, MissingTensorListsThoseThereAre) {
  const std::string image =
      image_of(R"({"query":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a");
  const auto file = SafetensorsFile::parse(bytes_of(image), "f");
  EXPECT_EQ(message([&] { file.at("q"); }), "f: has no tensor 'q' (it holds: query)");
  const std::string empty = image_of("{}");
  const auto nothing = SafetensorsFile::parse(bytes_of(empty), "f");
  EXPECT_EQ(message([&] { nothing.at("q"); }), "f: has no tensor 'q' (it holds: nothing)");
}

TEST_F(Files, MisalignedTensorIsRefusedWhenAskedFor) {
  const std::string image = image_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                     "abcde");
  const auto file = SafetensorsFile::parse(bytes_of(image), "f");
  EXPECT_EQ(message([&] { file.at("b"); }),
            "f: tensor 'b': its bytes are not aligned to its F32 elements");
}

TEST_F(Files, OpenRefusesWhatIsNoFile) {
  EXPECT_NE(message([&] { SafetensorsFile::open(path("none")); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(message([&] { SafetensorsFile::open(path("")); }).find("not a regular file"),
            std::string::npos);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_NE(message([&] { SafetensorsFile::open(path("fifo")); }).find("not a regular file"),
            std::string::npos);
  std::ofstream(path("empty")).close();
  EXPECT_NE(message([&] { SafetensorsFile::open(path("empty")); }).find("0 bytes"),
            std::string::npos);
}

TEST_F(Files, WriterRefusesWhatDoesNotFit) {
  const std::array<float, 2> two{};
  const auto bytes = std::as_bytes(std::span(two));
  const auto write = [&](std::vector<TensorEntry> tensors) {
    return message([&] { write_safetensors(path("x"), std::move(tensors)); });
  };
  EXPECT_EQ(write({{"a", "F32", {3}, bytes}}), "a: 8 bytes do not fit its F32 shape");
  EXPECT_EQ(write({{"a", "F33", {2}, bytes}}), "a: 8 bytes do not fit its F33 shape");
  EXPECT_EQ(write({{"a", "F32", {2}, bytes}, {"a", "F32", {2}, bytes}}), "a: is written twice");
  EXPECT_EQ(files(), 0U);
}

TEST_F(Files, AtomicFileAppearsOnlyWithCommit) {
  std::ofstream(path("old")) << "before";
  {
    AtomicFile file(path("old"));
    file.write(bytes_of("half"));
    EXPECT_EQ(read(path("old")), "before");
  }
  EXPECT_EQ(read(path("old")), "before");
  EXPECT_EQ(files(), 1U);
  AtomicFile file(path("old"));
  file.write(bytes_of("after"));
  file.commit();
  EXPECT_EQ(read(path("old")), "after");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, AtomicFileFollowsLinksAndSparesDevices) {
  std::ofstream(path("real")) << "before";
  fs::create_symlink("real", path("link"));
  {
    AtomicFile file(path("link"));
    file.write(bytes_of("after"));
    file.commit();
  }
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read(path("real")), "after");
  EXPECT_EQ(message([] { AtomicFile("/dev/null"); }),
            "/dev/null: exists and is not a regular file");
  EXPECT_NE(message([&] { AtomicFile file(path("no/folder")); }).find("cannot be created"),
            std::string::npos);
}

}  // namespace
}  // namespace vcattn::io
