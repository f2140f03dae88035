// Files that lie: each is refused with one line that names the file and the lie.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "safetensors_image.h"
#include "vcattn/error.h"

namespace vcattn::io {
namespace {

struct Lie {
  const char* name;
  std::string image;
  const char* message;  ///< part of it

  friend void PrintTo(const Lie& lie, std::ostream* stream) { *stream << lie.name; }
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t data_bytes) {
  return image_of("{" + entry("q", dtype, shape, offsets) + "}", std::string(data_bytes, '\0'));
}

std::string two(const std::string& a, const std::string& b, std::size_t data_bytes) {
  return image_of("{" + entry("a", "F32", "[1]", a) + "," + entry("b", "F32", "[1]", b) + "}",
                  std::string(data_bytes, '\0'));
}

std::vector<Lie> lies() {
  const std::string good = one("F32", "[2,3]", "[0,24]", 24);
  return {
      {"Empty", "", "0 bytes"},
      {"ShorterThanTheLength", "abc", "3 bytes"},
      {"LengthBeyondFile", image_of("{}", "", 1000), "truncated"},
      {"LengthHuge", image_of("{}", "", ~std::uint64_t{0}), "header length 18446744073709551615"},
      {"LengthOverTheLimit", image_of("{}", "", 100'000'001), "at most 100000000"},
      {"LengthZero", image_of("", "", 0), "not JSON"},
      {"NotJson", image_of("hello there"), "not JSON (byte 1)"},
      {"JsonCutShort", image_of(R"({"q":{"dtype":"F32",)"), "not JSON"},
      {"NotUtf8", image_of("{\"\xFF\xFE\":1}"), "not JSON"},
      {"TrailingJson", image_of("{} {}"), "not JSON"},
      {"HeaderIsAnArray", image_of("[]"), "not a JSON object"},
      {"NestedAbsurdly", image_of(std::string(100'000, '[')), "nests deeper"},
      {"NestedObjects", image_of(R"({"a":{"b":{"c":{"d":1}}}})"), "nests deeper"},
      {"NumberOutOfRange", image_of(R"({"q":1e999999})"), "not JSON"},
      {"NameTwice",
       image_of(
           "{" + entry("q", "U8", "[1]", "[0,1]") + "," + entry("q", "U8", "[1]", "[0,1]") + "}",
           "x"),
       "has the name 'q' twice"},
      {"KeyTwice",
       image_of(R"({"q":{"dtype":"U8","dtype":"F32","shape":[],"data_offsets":[0,1]}})"),
       "has the name 'dtype' twice"},
      {"EntryIsANumber", image_of(R"({"q":7})"), "tensor 'q' is not described by an object"},
      {"NoDtype", image_of(R"({"q":{"shape":[1],"data_offsets":[0,4]}})"), "has no dtype"},
      {"NoShape", image_of(R"({"q":{"dtype":"F32","data_offsets":[0,4]}})"), "has no shape"},
      {"NoOffsets", image_of(R"({"q":{"dtype":"F32","shape":[1]}})"), "has no data_offsets"},
      {"DtypeIsANumber", image_of(R"({"q":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})"),
       "dtype is not text"},
      {"ShapeIsText", one("F32", "\"6\"", "[0,24]", 24), "shape is not an array"},
      {"ShapeNegative", one("F32", "[2,-3]", "[0,24]", 24), "shape holds -3"},
      {"ShapeFraction", one("F32", "[2,3.5]", "[0,24]", 24), "shape holds 3.5"},
      {"ShapeBeyond63Bits", one("F32", "[9223372036854775808]", "[0,24]", 24), "shape overflows"},
      {"ShapeBeyond64Bits", one("F32", "[99999999999999999999]", "[0,24]", 24), "shape holds"},
      {"ShapeProductOverflows", one("F32", "[4294967296,4294967296,4]", "[0,0]", 0),
       "shape overflows"},
      {"EmptyButStridesOverflow", one("F32", "[0,4294967296,4294967296,4]", "[0,0]", 0),
       "shape overflows"},
      {"BitsOverflow", one("F64", "[1152921504606846976]", "[0,0]", 0), "are not the size of F64"},
      {"ShapeLargerThanBytes", one("F32", "[2,4]", "[0,24]", 24), "are not the size of F32 [2, 4]"},
      {"ShapeSmallerThanBytes", one("F32", "[5]", "[0,24]", 24), "are not the size of F32 [5]"},
      {"HalfAByte", one("F4", "[3]", "[0,1]", 1), "are not the size of F4 [3]"},
      {"OffsetsNegative", one("F32", "[1]", "[-4,0]", 4), "not a pair of byte positions"},
      {"OffsetsThree", one("F32", "[1]", "[0,4,8]", 4), "not a pair of byte positions"},
      {"OffsetsBackwards", one("F32", "[1]", "[4,0]", 4), "end before they begin"},
      {"OffsetsBeyondFile", one("F32", "[2,3]", "[0,24]", 20), "outside the 20 bytes of data"},
      {"OffsetsFarBeyondFile", one("F32", "[1]", "[18446744073709551611,18446744073709551615]", 4),
       "outside the 4 bytes"},
      {"Overlap", two("[0,4]", "[2,6]", 6), "tensor 'b': bytes 2 to 6 overlap"},
      {"SameBytesTwice", two("[0,4]", "[0,4]", 4), "overlap"},
      {"Hole", two("[0,4]", "[8,12]", 12), "tensor 'b': bytes 8 to 12 leave a hole"},
      {"BytesBehind", one("F32", "[1]", "[0,4]", 9), "5 bytes after its last tensor"},
      {"DataButNoTensor", image_of("{}", "xyz"), "3 bytes after"},
      {"Truncated", good.substr(0, good.size() - 1), "truncated"},
      {"MetadataIsAList", image_of(R"({"__metadata__":[]})"), "__metadata__ is not an object"},
      {"MetadataOfNumbers", image_of(R"({"__metadata__":{"steps":30}})"), "'steps' is not text"},
      {"NewlineInAName", image_of(R"({"a\nb":1})"), R"(tensor 'a\x0ab')"},
  };
}

class HostileFile : public ::testing::TestWithParam<Lie> {};

TEST_P(HostileFile, IsRefusedInOneLine) {
  const Lie& lie = GetParam();
  try {
    SafetensorsFile::parse(bytes_of(lie.image), "some.safetensors");
    FAIL() << "was accepted";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.where(), "some.safetensors");
    EXPECT_NE(what.find(lie.message), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    EXPECT_LT(what.size(), 500U) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostileFile, ::testing::ValuesIn(lies()),
                         [](const auto& lie) { return std::string(lie.param.name); });

/// Whatever byte is cut or changed, the reader answers with a file or an Error.
TEST(HostileFileSweep, EveryPrefixAndEveryByteChanged) {
  const std::string good =
      image_of(R"({"__metadata__":{"layout":"BHSD"},)" + entry("q", "BF16", "[1,2,3,4]", "[0,48]") +
                   "," + entry("n", "I32", "[1]", "[48,52]") + "}",
               std::string(52, '\1'));
  ASSERT_NO_THROW(SafetensorsFile::parse(bytes_of(good), "good"));
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    const std::string image = good.substr(0, cut);
    EXPECT_THROW(SafetensorsFile::parse(bytes_of(image), "cut"), Error) << cut;
  }
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char value : {'\0', '\1', '9', '-', '[', '{', '"', ',', '\x7F', '\xFF'}) {
      std::string image = good;
      image[at] = value;
      try {
        const SafetensorsFile file = SafetensorsFile::parse(bytes_of(image), "changed");
        for (const TensorEntry& tensor : file.tensors()) {
          EXPECT_LE(tensor.bytes.size(), 52U);
        }
      } catch (const Error&) {
        continue;  // the right answer for most changes
      }
    }
  }
}

}  // namespace
}  // namespace vcattn::io
