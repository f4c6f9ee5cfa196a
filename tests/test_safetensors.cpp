#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "minim/models/read_file.h"
#include "minim/models/safetensors.h"

using namespace minim;
using namespace minim::models;

namespace {

struct TempFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("minim-safetensors-" + std::to_string(::getpid()));
  ~TempFile() { std::filesystem::remove(path); }
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

std::string text_of(std::span<const std::byte> b) {
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

/// A file with the given header and data, whatever they say.
std::string file_with(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

/// What read() has to say about a file of these bytes; "" if it takes them.
std::string complaint(const std::string& bytes) {
  const TempFile temp;
  std::ofstream(temp.path, std::ios::binary) << bytes;
  try {
    SafeTensors::read(temp.path);
  } catch (const Error& e) {
    CHECK(std::string(e.what()).find(temp.path.string()) != std::string::npos);
    return e.what();
  }
  return "";
}

std::string write_complaint(const std::vector<Blob>& blobs, const Metadata& metadata = {}) {
  const TempFile temp;
  try {
    write_safetensors(temp.path, blobs, metadata);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

const std::vector<uint8_t> kThree{1, 2, 3};

}  // namespace

TEST_CASE("safetensors: blobs of every dtype come back as they were") {
  const TempFile temp;
  const std::vector<double> f64{1.5, -2};
  const std::vector<float> f32{0.25f, 1e30f, -0.0f, 7, 8, 9};
  const std::vector<uint16_t> halves{0x3c00, 0x7bff};
  const std::vector<int64_t> i64{INT64_MIN};
  const std::vector<int32_t> i32{-5};
  const std::vector<uint8_t> flags{0, 1, 1};
  const std::vector<Blob> blobs{
      {"z/u8", DType::u8, {3}, bytes_of(kThree)},
      {"w \"quoted\" \u00e9", DType::f32, {2, 3}, bytes_of(f32)},
      {"f64", DType::f64, {2, 1}, bytes_of(f64)},
      {"f16", DType::f16, {2}, bytes_of(halves)},
      {"bf16", DType::bf16, {1, 2}, bytes_of(halves)},
      {"scalar", DType::i64, {}, bytes_of(i64)},
      {"i32", DType::i32, {1, 1, 1}, bytes_of(i32)},
      {"bool", DType::boolean, {3}, bytes_of(flags)},
      {"empty", DType::f32, {0, 4}, {}},
  };
  const Metadata metadata{{"step", "12"}, {"note", "line\nbreak"}};
  write_safetensors(temp.path, blobs, metadata);

  SafeTensors original = SafeTensors::read(temp.path);
  const SafeTensors file = std::move(original);
  CHECK(file.metadata() == metadata);
  REQUIRE(file.blobs().size() == blobs.size());
  for (const Blob& expected : blobs) {
    INFO(expected.name);
    const Blob* found = file.find(expected.name);
    REQUIRE(found);
    CHECK(found->dtype == expected.dtype);
    CHECK(found->shape == expected.shape);
    CHECK(text_of(found->bytes) == text_of(expected.bytes));
    CHECK(reinterpret_cast<uintptr_t>(found->bytes.data()) % size_of(found->dtype) == 0);
  }
  CHECK(file.find("absent") == nullptr);
  CHECK(file.find("") == nullptr);
  for (size_t i = 1; i < blobs.size(); ++i) CHECK(file.blobs()[i - 1].name < file.blobs()[i].name);
}

TEST_CASE("safetensors: a small file has exactly the bytes the format prescribes") {
  const TempFile temp;
  const std::vector<Blob> blobs{{"a", DType::u8, {3}, bytes_of(kThree)}};
  write_safetensors(temp.path, blobs, {{"k", "v"}});
  std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  header.resize(80, ' ');
  CHECK(read_file(temp.path, "test") == std::string("\x50\0\0\0\0\0\0\0", 8) + header + "\1\2\3");
}

TEST_CASE("safetensors: the order of the blobs does not change the file") {
  const TempFile temp;
  const std::vector<float> f32{1, 2};
  std::vector<Blob> blobs{{"b", DType::f32, {1}, bytes_of(f32).first(4)},
                          {"a", DType::f32, {2}, bytes_of(f32)},
                          {"0", DType::u8, {3}, bytes_of(kThree)}};
  write_safetensors(temp.path, blobs);
  const std::string once = read_file(temp.path, "test");
  std::swap(blobs[0], blobs[2]);
  write_safetensors(temp.path, blobs);
  CHECK(read_file(temp.path, "test") == once);
}

TEST_CASE("safetensors: a file without arrays is valid") {
  const TempFile temp;
  write_safetensors(temp.path, {}, {});
  CHECK(SafeTensors::read(temp.path).blobs().empty());
}

TEST_CASE("safetensors: data that another writer did not align is aligned in memory") {
  const TempFile temp;
  const std::string header = R"({"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  for (size_t pad = 0; pad < 8; ++pad) {
    std::ofstream(temp.path, std::ios::binary)
        << file_with(header + std::string(pad, ' '), "abcdefgh");
    const SafeTensors file = SafeTensors::read(temp.path);
    CHECK(text_of(file.find("x")->bytes) == "abcdefgh");
    CHECK(reinterpret_cast<uintptr_t>(file.find("x")->bytes.data()) % 8 == 0);
  }
}

TEST_CASE("safetensors: every defect of a file has its own message") {
  const std::string ok = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets, const std::string& data = "123") {
    return complaint(file_with(R"({"a":)" + entry(dtype, shape, offsets) + "}", data));
  };
  const auto two = [&](const std::string& first, const std::string& second, const std::string& data,
                       const std::string& name = "b") {
    return complaint(file_with(R"({"a":)" + entry("\"U8\"", "[2]", first) + ",\"" + name +
                                   "\":" + entry("\"U8\"", "[2]", second) + "}",
                               data));
  };
  CHECK(complaint(file_with(ok, "123")) == "");
  CHECK(two("[2,4]", "[0,2]", "1234") == "");

  CHECK(says(complaint(""), "it has 0 bytes"));
  CHECK(says(complaint("1234567"), "it has 7 bytes; a header length needs 8"));
  CHECK(says(complaint(std::string("\x09\0\0\0\0\0\0\0{}", 10)), "has 9 bytes but 2 remain"));
  CHECK(says(complaint("\x89PNG\r\n\x1a\n and more"), "more than the allowed 100000000"));
  CHECK(says(complaint(std::string(8, '\xff') + "{}"), "18446744073709551615 bytes, more than"));
  CHECK(says(complaint(file_with("{\"a\":", "")), "not valid JSON"));
  CHECK(says(complaint(file_with("", "")), "not valid JSON"));
  CHECK(says(complaint(file_with(std::string(100000, '['), "")), "nested deeper"));
  CHECK(says(complaint(file_with("[]", "")), "must be a JSON object, not array"));
  CHECK(says(complaint(file_with(R"({"a":3})", "")), "'a' has no dtype"));
  CHECK(says(complaint(file_with(R"({"a":{"dtype":"U8","shape":[3]}})", "123")),
             "'a' has no data_offsets"));

  CHECK(says(one("\"F6_E2M3\"", "[3]", "[0,3]"), "the dtype \"F6_E2M3\": known are"));
  CHECK(says(one("3", "[3]", "[0,3]"), "the dtype 3: known are"));
  CHECK(says(one("\"U8\"", "3", "[0,3]"), "'a' has the shape 3: expected whole numbers"));
  CHECK(says(one("\"U8\"", "[-3]", "[0,3]"), "the shape [-3]"));
  CHECK(says(one("\"U8\"", "[3.0]", "[0,3]"), "the shape [3.0]"));
  CHECK(says(one("\"U8\"", "[9223372036854775808]", "[0,3]"), "expected whole numbers"));
  CHECK(says(one("\"U8\"", "[99999999999999999999999]", "[0,3]"), "expected whole numbers"));
  CHECK(says(one("\"U8\"", "[3]", "[0]"), "1 data_offsets, not 2"));
  CHECK(says(one("\"U8\"", "[3]", "[0,-3]"), "the data_offsets [0,-3]"));
  CHECK(says(one("\"U8\"", "[3]", "[3,0]"), "at bytes 3 to 0 of the data"));
  CHECK(says(one("\"U8\"", "[4]", "[0,4]"), "at bytes 0 to 4 of the data, which has 3 bytes"));
  CHECK(says(one("\"U8\"", "[3]", "[9223372036854775804,9223372036854775807]"), "cut short"));
  CHECK(says(one("\"U8\"", "[2]", "[0,3]"), "needs 2 bytes but has 3"));
  CHECK(says(one("\"F32\"", "[3]", "[0,3]"), "shape [3] and dtype f32 needs 12 bytes but has 3"));
  // 2^32 * 2^32 wraps to 0 and 2^62 elements of 8 bytes wrap to 0: both must not pass for empty.
  CHECK(says(one("\"U8\"", "[4294967296,4294967296]", "[0,0]", ""), "beyond 64 bits"));
  CHECK(says(one("\"F64\"", "[4611686018427387904]", "[0,0]", ""), "beyond 64 bits"));
  CHECK(says(one("\"BOOL\"", "[3]", "[0,3]", std::string("\0\1\2", 3)), "byte 2, not 0 or 1"));

  CHECK(says(two("[0,2]", "[1,3]", "123"), "'b' begins at byte 1 of the data where 2"));
  CHECK(says(two("[0,2]", "[0,2]", "12"), "begins at byte 0 of the data where 2"));
  CHECK(says(two("[0,2]", "[3,5]", "12345"), "'b' begins at byte 3 of the data where 2"));
  CHECK(says(two("[1,3]", "[3,5]", "12345"), "'a' begins at byte 1 of the data where 0"));
  CHECK(says(two("[0,2]", "[2,4]", "12345"), "has 5 bytes but the arrays end at 4"));
  CHECK(says(two("[0,2]", "[2,4]", "1234", "a"), "names 'a' twice"));
  CHECK(says(complaint(file_with(
                 R"({"a":{"dtype":"U8","dtype":"I8","shape":[3],"data_offsets":[0,3]}})", "123")),
             "names 'dtype' twice"));
  CHECK(says(complaint(file_with("{}", "x")), "has 1 bytes but the arrays end at 0"));
  CHECK(says(complaint(file_with(R"({"__metadata__":{"k":1}})", "")), "map strings to strings"));
  CHECK(says(complaint(file_with(R"({"__metadata__":[]})", "")), "map strings to strings"));
}

TEST_CASE("safetensors: a file cut at any byte is refused") {
  const std::string whole =
      file_with(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "123");
  for (size_t n = 0; n < whole.size(); ++n) CHECK(complaint(whole.substr(0, n)) != "");
}

TEST_CASE("safetensors: a missing file is an error that names it") {
  CHECK_THROWS_WITH_AS(SafeTensors::read("/nowhere/x.safetensors"),
                       doctest::Contains("/nowhere/x.safetensors"), Error);
}

TEST_CASE("safetensors: what cannot be written is refused") {
  const Blob good{"a", DType::u8, {3}, bytes_of(kThree)};
  const auto with = [&](auto change) {
    Blob b = good;
    change(b);
    return write_complaint({b});
  };
  CHECK(write_complaint({good}) == "");
  CHECK(says(write_complaint({good, good}), "'a' is reserved or given twice"));
  CHECK(says(with([](Blob& b) { b.name = "__metadata__"; }), "reserved"));
  CHECK(says(with([](Blob& b) { b.name = "\xff"; }), "not UTF-8"));
  CHECK(says(with([](Blob& b) { b.shape = {4}; }), "needs 4 bytes but has 3"));
  CHECK(says(with([](Blob& b) { b.shape = {-3, -1}; }), "the shape [-3,-1], which is negative"));
  CHECK(says(with([](Blob& b) { b.shape = {INT64_MAX, 4}; }), "beyond 64 bits"));
  CHECK(says(write_complaint({good}, {{"k", "\xff"}}), "not UTF-8"));
  const std::vector<Blob> blobs{good};
  CHECK_THROWS_WITH_AS(write_safetensors("/nowhere/x", blobs), doctest::Contains("/nowhere/x"),
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors("/dev/full", blobs), doctest::Contains("No space"), Error);
}
