// Everything that the light headers offer, in functions whose answers Python compares with those of PyTorch's headers.
#include <torch/extension.h>
#include <ATen/AccumulateType.h>
#include <ATen/OpMathType.h>

#include <string>
#include <vector>

namespace {
std::string text_of(at::IntArrayRef sizes) {
  std::string text;
  for (int64_t size : sizes) text += std::to_string(size) + ",";
  return text;
}
}  // namespace

std::vector<int64_t> numbers(const torch::Tensor& x) {
  std::vector<int64_t> found = {x.dim(), x.numel(), x.size(0), x.size(-1), x.stride(0), x.stride(-1), x.storage_offset()};
  found.push_back(x.element_size());
  found.push_back(static_cast<int64_t>(x.nbytes()));
  found.push_back(static_cast<int64_t>(x.itemsize()));
  found.push_back(x.is_contiguous());
  found.push_back(x.is_cuda());
  found.push_back(x.is_cpu());
  found.push_back(x.defined());
  found.push_back(x.get_device());
  found.push_back(x.requires_grad());
  found.push_back(x.is_floating_point());
  found.push_back(x.is_same(x));
  found.push_back(x.is_same(x.clone()));
  found.push_back(x.scalar_type() == torch::kFloat32);
  found.push_back(x.dtype() == torch::kFloat32);
  found.push_back(x.dtype() == torch::kFloat64);
  found.push_back(x.dtype() != at::kHalf);
  found.push_back(x.device() == torch::kCPU);
  found.push_back(x.device().type() == at::kCPU);
  found.push_back(x.device().index());
  found.push_back(x.options().dtype() == x.dtype());
  found.push_back(x.sizes() == x.clone().sizes());
  found.push_back(x.sizes() == std::vector<int64_t>{2, 3});
  found.push_back(x.sizes().vec() == x.strides().vec());
  found.push_back(static_cast<int64_t>(at::elementSize(x.scalar_type())));
  found.push_back(sizeof(at::acc_type<float, true>) + 10 * sizeof(at::acc_type<float, false>));
  found.push_back(sizeof(at::acc_type<int, true>) + 10 * sizeof(at::acc_type<double, true>));
  found.push_back(sizeof(at::opmath_type<float>));
  return found;
}

std::string words(const torch::Tensor& x) {
  return std::string(toString(x.scalar_type())) + " " + x.device().str() + " " + text_of(x.sizes()) + " " +
         text_of(x.strides()) + " " + text_of(x.sizes().slice(1)) + std::string(x.dtype().name());
}

std::vector<torch::Tensor> allocated(const torch::Tensor& x) {
  std::vector<torch::Tensor> made;
  made.push_back(torch::zeros({2, 3}));
  made.push_back(torch::zeros({x.size(0), x.size(1)}, x.options()));
  made.push_back(torch::ones({4}, torch::kInt32));
  made.push_back(torch::ones({4}, torch::TensorOptions().dtype(torch::kFloat64).device(torch::kCPU)));
  made.push_back(torch::full({2, 2}, 3, x.options()));
  made.push_back(torch::full({2, 2}, 3));
  made.push_back(torch::full({2, 2}, 2.5, torch::dtype(torch::kFloat64)));
  made.push_back(torch::full({2, 2}, 7, torch::kInt64));
  made.push_back(at::zeros_like(x));
  made.push_back(at::zeros_like(x, x.options().dtype(at::kHalf)));
  made.push_back(at::ones_like(x, at::kDouble));
  made.push_back(at::full_like(x, 1.5));
  made.push_back(at::empty_like(x).zero_());
  made.push_back(at::empty_like(x, at::MemoryFormat::Contiguous).zero_());
  made.push_back(torch::empty({3, 0, 2}, x.options()));
  made.push_back(torch::empty(x.sizes(), x.options().dtype(torch::kBool)).zero_());
  made.push_back(torch::empty_strided({2, 3}, {1, 2}, x.options()).zero_());
  made.push_back(torch::zeros(x.sizes().vec(), torch::TensorOptions(x.device()).dtype(x.scalar_type())));
  made.push_back(torch::zeros({2}, torch::TensorOptions().dtype(torch::kFloat32).requires_grad(true)));
  made.push_back(x.new_zeros({5}));
  made.push_back(x.new_empty({5}, torch::kInt16).fill_(4));
  made.push_back(torch::zeros({1}, torch::dtype<double>()));
  return made;
}

std::vector<torch::Tensor> viewed(const torch::Tensor& x) {
  std::vector<torch::Tensor> made;
  made.push_back(x.view({-1}));
  made.push_back(x.view({x.size(1), x.size(0)}));
  made.push_back(x.view(torch::kInt32));
  made.push_back(x.view_as(x));
  made.push_back(x.t().reshape({-1}));
  made.push_back(x.reshape_as(x.t()));
  made.push_back(x.transpose(0, 1));
  made.push_back(x.transpose(0, 1).contiguous());
  made.push_back(x.permute({1, 0}));
  made.push_back(x.unsqueeze(-1));
  made.push_back(x.unsqueeze(0).squeeze());
  made.push_back(x.unsqueeze(0).squeeze(0));
  made.push_back(x.unsqueeze(0).squeeze(1));
  made.push_back(x.flatten());
  made.push_back(x.unsqueeze(0).flatten(1, 2));
  made.push_back(x.narrow(1, 1, 2));
  made.push_back(x.select(1, -1));
  made.push_back(x[1]);
  made.push_back(x[-1][0]);
  made.push_back(x.slice(1, 1));
  made.push_back(x.slice(1, 0, -1));
  made.push_back(x.slice(1, 0, 3, 2));
  made.push_back(x.slice(/*dim=*/0, /*start=*/c10::nullopt, /*end=*/1));
  made.push_back(x.unsqueeze(0).expand({4, -1, -1}));
  made.push_back(x.unsqueeze(0).expand_as(torch::zeros({2, x.size(0), x.size(1)})));
  made.push_back(x.as_strided({2, 2}, {1, 1}));
  made.push_back(x.as_strided({2, 2}, {1, 1}, 1));
  made.push_back(x.detach());
  made.push_back(x.clone());
  return made;
}

std::vector<torch::Tensor> copied(const torch::Tensor& x) {
  std::vector<torch::Tensor> made;
  made.push_back(x.to(torch::kFloat64));
  made.push_back(x.to(at::kBFloat16));
  made.push_back(x.to(x.dtype()));
  made.push_back(x.to(x.options().dtype(torch::kInt64)));
  made.push_back(x.to(x.device(), torch::kFloat16));
  made.push_back(x.toType(at::kInt));
  made.push_back(x.cpu());
  auto copy = torch::empty_like(x);
  copy.copy_(x);
  made.push_back(copy);
  torch::Tensor filled = torch::empty({3});
  filled.fill_(2.5);
  made.push_back(filled.clone());
  filled.zero_();
  made.push_back(filled);
  torch::Tensor moved = std::move(copy);
  made.push_back(moved);
  torch::Tensor again;
  again = moved;
  made.push_back(again);
  made.push_back(torch::empty({0}).resize_({2, 2}).zero_());
  return made;
}

template <typename scalar_t>
double summed(const scalar_t* data, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(data[i]);
  return sum;
}

double dispatched(torch::Tensor x) {
  double sum = 0.0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "dispatched", [&] {
    scalar_t* data = x.data_ptr<scalar_t>();
    data[0] = static_cast<scalar_t>(static_cast<float>(data[0]) * 2.0f);
    data[0] = data[0] + data[1];
    sum = summed(x.const_data_ptr<scalar_t>(), x.numel());
  });
  return sum;
}

double dispatched_all(torch::Tensor x) {
  return AT_DISPATCH_ALL_TYPES(x.scalar_type(), "dispatched_all", [&]() -> double {
    return summed(x.data_ptr<scalar_t>(), x.numel());
  });
}

double dispatched_floating(torch::Tensor x) {
  double sum = 0.0;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dispatched_floating", ([&] {
                               auto all = x.accessor<scalar_t, 2>();
                               for (int64_t i = 0; i < all.size(0); ++i) {
                                 for (int64_t j = 0; j < all.size(1); ++j) sum += (i + 1) * all[i][j];
                               }
                             }));
  return sum;
}

int64_t typed_pointers(torch::Tensor x) {
  const float* constant = x.data_ptr<float>();
  float* changed = x.mutable_data_ptr<float>();
  const void* untyped = x.const_data_ptr();
  return (constant == changed) + 2 * (untyped == x.data_ptr());
}

int64_t checked(torch::Tensor x, int64_t wanted) {
  TORCH_CHECK(x.dim() == wanted, "expected ", wanted, " dimensions, got ", x.dim(), " of sizes ", x.sizes(), " and ",
              x.scalar_type(), " ", x.dtype(), " on ", x.device(), ": ", 2.5, " ", 1e-7f, " ", true, ' ', "end");
  TORCH_CHECK_VALUE(x.size(0) > 1, "one row");
  TORCH_CHECK(x.numel() != 6);
  return x.dim();
}

int64_t compared(torch::Tensor x, int64_t wanted) {
  TORCH_CHECK_EQ(x.dim(), wanted);
  TORCH_CHECK_NE(wanted, 3) << "three dimensions of sizes " << wanted << ", " << 2.5 << ' ' << true;
  if (x.numel() > 3) TORCH_CHECK_LE(x.size(0), 1); else TORCH_CHECK_LT(x.size(0), 2) << std::string("rows");
  TORCH_CHECK_GE(x.numel(), 2);
  TORCH_CHECK_GT(x.size(-1), 1) << "on " << x.scalar_type();
  return x.dim();
}

torch::Tensor optional_bias(const torch::Tensor& x, const c10::optional<torch::Tensor>& bias, std::optional<double> scale) {
  if (bias.has_value() && bias->defined()) return bias.value();
  return scale ? torch::full({1}, *scale) : x;
}

std::tuple<torch::Tensor, int64_t, double> three(torch::Tensor x, int n, float f) {
  return std::make_tuple(x, n, f);
}

std::pair<bool, std::string> two(bool truth, const std::string& text) {
  return {!truth, text + "!"};
}

std::vector<int64_t> arguments(at::IntArrayRef sizes, std::vector<int64_t> strides, std::vector<double> numbers,
                               const std::vector<torch::Tensor>& tensors, size_t count, int8_t small) {
  std::vector<int64_t> found(sizes.begin(), sizes.end());
  for (int64_t stride : strides) found.push_back(stride);
  for (double number : numbers) found.push_back(static_cast<int64_t>(number * 10));
  for (const auto& tensor : tensors) found.push_back(tensor.numel());
  found.push_back(static_cast<int64_t>(count));
  found.push_back(small);
  return found;
}

torch::Tensor undefined(bool really) {
  torch::Tensor nothing;
  TORCH_CHECK(!nothing.defined(), "it is defined");
  return really ? nothing : torch::zeros({1});
}

torch::Tensor of_type(at::ScalarType type) {
  return torch::zeros({1}, type);
}

void nothing(torch::Tensor& x) {
  x.zero_();
}

double item(const torch::Tensor& x) {
  return x.item<double>() + x.item<float>() + static_cast<double>(x.item<int64_t>()) + x.item<bool>();
}

void throws(int64_t which) {
  if (which == 0) throw std::runtime_error("a runtime error");
  if (which == 1) throw std::out_of_range("out of range");
  if (which == 2) throw std::invalid_argument("invalid");
  if (which == 3) AT_ERROR("an error ", 3);
  if (which == 4) TORCH_CHECK_NOT_IMPLEMENTED(false, "not yet");
  if (which == 5) TORCH_CHECK_INDEX(false, "index");
  if (which == 6) TORCH_CHECK_TYPE(false, "type");
}

bool moved_from() {
  torch::Tensor kept = torch::zeros({1});
  torch::Tensor given = torch::ones({2});
  kept = std::move(given);
  return given.defined();
}

int64_t item_int(const torch::Tensor& x) {
  return x.item<int>();
}

double item_float(const torch::Tensor& x) {
  return x.item<float>();
}

int64_t item_byte(const torch::Tensor& x) {
  return x.item<uint8_t>();
}

std::string type_names(const torch::Tensor& x) {
  return std::string(toString(x.scalar_type())) + " " + std::string(x.dtype().name()) + " " +
         std::to_string(at::elementSize(x.scalar_type())) + " " + std::to_string(at::isFloatingType(x.scalar_type()));
}

enum Code { kFine, kWrong };

void printed(const torch::Tensor& x) {
  TORCH_CHECK(false, kWrong, " ", static_cast<uint8_t>(65), static_cast<int8_t>(66), " ", x.device().type(), " ", 1e20, " ", -1.0f / 3);
}

bool undefined_devices() {
  torch::Tensor nothing;
  return nothing.is_cuda() || nothing.is_cpu();
}

int64_t array_misuse(std::vector<int64_t> values, int64_t which) {
  const at::IntArrayRef all(values);
  if (which == 0) return all.front();
  if (which == 1) return all.back();
  if (which == 2) return all.at(7);
  return static_cast<int64_t>(all.slice(2, 9).size());
}

torch::Tensor new_without_gradient(const torch::Tensor& x) {
  return x.new_zeros({2}, x.options().requires_grad(true));
}

int64_t array_of(at::IntArrayRef values) {
  int64_t sum = 0;
  for (int64_t value : values) sum += value;
  return sum;
}

std::string text(const std::string& given) {
  return given;
}

void warns() {
  TORCH_WARN("a warning ", 3);
}

void throws_no_exception(bool number) {
  if (number) throw 5;
  throw "text";
}
