// A small convolutional network reads drawn digits, in each precision.
#include <array>

#include "minim/docs/examples/training.h"
#include "minim/models/init.h"

using namespace minim;

constexpr Index kSide = 16;

/// The digits, 5 wide and 7 high; one row each line, its leftmost pixel in bit 4.
constexpr std::array<std::array<uint8_t, 7>, 10> kFont{{
    {0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110},
    {0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110},
    {0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111},
    {0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110},
    {0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010},
    {0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110},
    {0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110},
    {0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000},
    {0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110},
    {0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100},
}};

/// Pixel (row, column) of a digit; 0 outside it.
double ink(int digit, Index row, Index column) {
  if (row < 0 || row > 6 || column < 0 || column > 4) return 0;
  return kFont[size_t(digit)][size_t(row)] >> (4 - column) & 1;
}

/// The digit at a point between pixels, bilinear.
double ink(int digit, double row, double column) {
  const Index r = Index(std::floor(row)), c = Index(std::floor(column));
  const double down = row - double(r), right = column - double(c);
  return (1 - down) * ((1 - right) * ink(digit, r, c) + right * ink(digit, r, c + 1)) +
         down * ((1 - right) * ink(digit, r + 1, c) + right * ink(digit, r + 1, c + 1));
}

/// n images (n, 1, 16, 16), each digit as often, 1.2 to 2 times the font's size somewhere in the
/// frame, under noise.
example::Examples digits(Index n) {
  const std::vector<double> random =
      models::init::uniform(zeros({n, 4}, DType::f64), 0, 1).to_vector();
  Tensor x = empty({n, 1, kSide, kSide}), labels = empty({n}, DType::i64);
  float* pixel = x.span<float>().data();
  for (Index i = 0; i < n; ++i) {
    const double* u = &random[size_t(4 * i)];
    const int digit = int(i % 10);
    labels.span<int64_t>()[size_t(i)] = digit;
    const double height = 1.2 + 0.8 * u[0], width = 1.2 + 0.8 * u[1];
    const double top = u[2] * (kSide - 7 * height), left = u[3] * (kSide - 5 * width);
    for (Index row = 0; row < kSide; ++row)
      for (Index column = 0; column < kSide; ++column)
        *pixel++ = float(ink(digit, (double(row) - top) / height, (double(column) - left) / width));
  }
  return {x + models::init::normal(zeros(x.shape()), 0, 0.15), labels};
}

std::unique_ptr<models::Module> convnet() {
  auto net = std::make_unique<models::Sequential>();
  auto block = [&](Index in, Index out) {
    net->add<models::Conv2d>(in, out, 3, op::Conv2d::Attrs{.padding = 1}, false);
    net->add<models::BatchNorm2d>(out);
    net->add([](const Tensor& x) { return max_pool2d(relu(x)); });
  };
  block(1, 8);
  block(8, 16);
  block(16, 16);
  net->add([](const Tensor& x) { return x.flatten(1); });
  models::init::kaiming_normal(net->add<models::Linear>(16 * kSide * kSide / 64, 10).weight, 1);
  return net;
}

int main(int argc, char** argv) {
  manual_seed(2026);
  return example::run(argc, argv,
                      {.model = convnet,
                       .train = digits(4000),
                       .held_out = digits(2000),
                       .steps = 240,
                       .batch = 32,
                       .lr = 2e-2,
                       .least = 0.97});
}
