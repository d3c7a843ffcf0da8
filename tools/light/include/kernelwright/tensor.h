// torch::Tensor as far as a candidate may use it: allocation, views, plain copies, and what it says about itself.
// Arithmetic is left out on purpose; code that uses it is compiled against PyTorch's own headers.
#pragma once

#include "kernelwright/types.h"

namespace c10 {
inline namespace light {

template <typename T, size_t N, template <typename> class PtrTraits, typename index_t>
class LightAccessor;
template <typename T, size_t N, template <typename> class PtrTraits, typename index_t>
class LightPackedAccessor;
template <typename T>
struct DefaultPtrTraits {
  using PtrType = T*;
};

// What Tensor::type() answers, which PyTorch has deprecated long ago.
class DeprecatedTypeProperties {
 public:
  DeprecatedTypeProperties(ScalarType type, DeviceType device) : type_(type), device_(device) {}
  ScalarType scalarType() const {
    return type_;
  }
  bool is_cuda() const {
    return device_ == DeviceType::CUDA;
  }
  DeviceType device_type() const {
    return device_;
  }

 private:
  ScalarType type_;
  DeviceType device_;
};

inline ScalarType dispatched(ScalarType type) {
  return type;
}
inline ScalarType dispatched(const DeprecatedTypeProperties& type) {
  return type.scalarType();
}

class Tensor {
 public:
  Tensor() noexcept : impl_(kernelwright_undefined()) {}
  Tensor(const Tensor& other) noexcept : impl_(other.impl_) {
    kernelwright_retain(impl_);
  }
  Tensor(Tensor&& other) noexcept : impl_(other.impl_) {
    other.impl_ = kernelwright_undefined();
  }
  ~Tensor() {
    kernelwright_release(impl_);
  }
  Tensor& operator=(const Tensor& other) & noexcept {
    Tensor copied(other);
    std::swap(impl_, copied.impl_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) & noexcept {
    Tensor moved(std::move(other));
    std::swap(impl_, moved.impl_);
    return *this;
  }
  static Tensor adopted(void* impl) {
    return Tensor(impl, 0);
  }
  void* handle() const noexcept {
    return impl_;
  }

  bool defined() const noexcept {
    return impl_ != kernelwright_undefined();
  }
  void reset() {
    *this = Tensor();
  }
  bool is_same(const Tensor& other) const noexcept {
    return impl_ == other.impl_;
  }

  int64_t dim() const {
    return kernelwright_dim(impl_);
  }
  int64_t ndimension() const {
    return dim();
  }
  int64_t numel() const {
    return kernelwright_numel(impl_);
  }
  int64_t size(int64_t dim) const {
    return kernelwright_size(impl_, dim);
  }
  int64_t stride(int64_t dim) const {
    return kernelwright_stride(impl_, dim);
  }
  IntArrayRef sizes() const {
    const KernelwrightSpan all = kernelwright_sizes(impl_);
    return IntArrayRef(all.data, all.size);
  }
  IntArrayRef strides() const {
    const KernelwrightSpan all = kernelwright_strides(impl_);
    return IntArrayRef(all.data, all.size);
  }
  int64_t storage_offset() const {
    return kernelwright_storage_offset(impl_);
  }
  size_t itemsize() const {
    return static_cast<size_t>(kernelwright_element_size(impl_));
  }
  int64_t element_size() const {
    return kernelwright_element_size(impl_);
  }
  size_t nbytes() const {
    return static_cast<size_t>(kernelwright_nbytes(impl_));
  }
  ScalarType scalar_type() const {
    return static_cast<ScalarType>(kernelwright_scalar_type(impl_));
  }
  TypeMeta dtype() const {
    return TypeMeta(scalar_type());
  }
  DeprecatedTypeProperties type() const {
    return DeprecatedTypeProperties(scalar_type(), device().type());
  }
  Device device() const {
    const KernelwrightOptions given = kernelwright_options(impl_);
    return Device(static_cast<DeviceType>(given.device_type), static_cast<DeviceIndex>(given.device_index));
  }
  DeviceIndex get_device() const {
    return device().index();
  }
  TensorOptions options() const {
    return TensorOptions(kernelwright_options(impl_));
  }
  Layout layout() const {
    (void)kernelwright_options(impl_);
    return Layout::Strided;
  }
  bool is_cuda() const {
    return defined() && device().is_cuda();
  }
  bool is_cpu() const {
    return defined() && device().is_cpu();
  }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return kernelwright_is_contiguous(impl_, static_cast<int>(format)) != 0;
  }
  bool is_floating_point() const {
    return isFloatingType(scalar_type());
  }
  bool is_pinned() const {
    return kernelwright_is_pinned(impl_) != 0;
  }
  bool requires_grad() const {
    return kernelwright_requires_grad(impl_) != 0;
  }

  void* data_ptr() const {
    return kernelwright_data_ptr(impl_, -1, false);
  }
  void* mutable_data_ptr() const {
    return kernelwright_data_ptr(impl_, -1, false);
  }
  const void* const_data_ptr() const {
    return kernelwright_data_ptr(impl_, -1, true);
  }
  template <typename T>
  T* data_ptr() const {
    const auto type = static_cast<int>(CppTypeToScalarType<T>::value);
    return static_cast<T*>(kernelwright_data_ptr(impl_, type, std::is_const_v<T>));
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return static_cast<T*>(kernelwright_data_ptr(impl_, static_cast<int>(CppTypeToScalarType<T>::value), false));
  }
  template <typename T>
  const T* const_data_ptr() const {
    return static_cast<const T*>(kernelwright_data_ptr(impl_, static_cast<int>(CppTypeToScalarType<T>::value), true));
  }
  template <typename T>
  T item() const {
    static_assert(std::is_arithmetic_v<T>, "only plain numbers");
    T value;
    kernelwright_item(impl_, static_cast<int>(CppTypeToScalarType<T>::value), &value);
    return value;
  }

  template <typename T, size_t N>
  LightAccessor<T, N, DefaultPtrTraits, int64_t> accessor() const& {
    require_dim(N);
    return LightAccessor<T, N, DefaultPtrTraits, int64_t>(data_ptr<T>(), sizes().data(), strides().data());
  }
  // It would point into a tensor that is gone.
  template <typename T, size_t N>
  LightAccessor<T, N, DefaultPtrTraits, int64_t> accessor() && = delete;
  template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits, typename index_t = int64_t>
  LightPackedAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() const& {
    require_dim(N);
    return LightPackedAccessor<T, N, PtrTraits, index_t>(data_ptr<T>(), sizes().data(), strides().data());
  }
  template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
  LightPackedAccessor<T, N, PtrTraits, int32_t> packed_accessor32() const& {
    TORCH_CHECK(numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
                "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return generic_packed_accessor<T, N, PtrTraits, int32_t>();
  }
  template <typename T, size_t N, template <typename> class PtrTraits = DefaultPtrTraits>
  LightPackedAccessor<T, N, PtrTraits, int64_t> packed_accessor64() const& {
    return generic_packed_accessor<T, N, PtrTraits, int64_t>();
  }

  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
    return adopted(kernelwright_contiguous(impl_, static_cast<int>(format)));
  }
  Tensor clone(optional<MemoryFormat> format = nullopt) const {
    return adopted(kernelwright_clone(impl_, format ? static_cast<int>(*format) : -1));
  }
  Tensor detach() const {
    return adopted(kernelwright_detach(impl_));
  }
  Tensor to(TensorOptions options, bool non_blocking = false, bool copy = false) const {
    return adopted(kernelwright_to(impl_, options.given(), non_blocking, copy));
  }
  Tensor to(Device device, ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(device).dtype(type), non_blocking, copy);
  }
  Tensor to(ScalarType type, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(type), non_blocking, copy);
  }
  Tensor to(TypeMeta type, bool non_blocking = false, bool copy = false) const {
    return to(type.toScalarType(), non_blocking, copy);
  }
  Tensor toType(ScalarType type) const {
    return to(type);
  }
  Tensor cpu() const {
    return to(Device(DeviceType::CPU));
  }
  Tensor cuda() const {
    return to(Device(DeviceType::CUDA));
  }
  Tensor view(IntArrayRef sizes) const {
    return adopted(kernelwright_view(impl_, span(sizes)));
  }
  Tensor view(ScalarType type) const {
    return adopted(kernelwright_view_as_type(impl_, static_cast<int>(type)));
  }
  Tensor view_as(const Tensor& other) const {
    return view(other.sizes());
  }
  Tensor reshape(IntArrayRef sizes) const {
    return adopted(kernelwright_reshape(impl_, span(sizes)));
  }
  Tensor reshape_as(const Tensor& other) const {
    return reshape(other.sizes());
  }
  Tensor expand(IntArrayRef sizes, bool implicit = false) const {
    return adopted(kernelwright_expand(impl_, span(sizes), implicit));
  }
  Tensor expand_as(const Tensor& other) const {
    return expand(other.sizes());
  }
  Tensor permute(IntArrayRef order) const {
    return adopted(kernelwright_permute(impl_, span(order)));
  }
  Tensor as_strided(IntArrayRef sizes, IntArrayRef strides, optional<int64_t> offset = nullopt) const {
    return adopted(
        kernelwright_as_strided(impl_, span(sizes), span(strides), offset.value_or(0), offset.has_value()));
  }
  Tensor transpose(int64_t first, int64_t second) const {
    return adopted(kernelwright_transpose(impl_, first, second));
  }
  Tensor t() const {
    return adopted(kernelwright_t(impl_));
  }
  Tensor unsqueeze(int64_t dim) const {
    return adopted(kernelwright_unsqueeze(impl_, dim));
  }
  Tensor squeeze() const {
    return adopted(kernelwright_squeeze(impl_, 0, false));
  }
  Tensor squeeze(int64_t dim) const {
    return adopted(kernelwright_squeeze(impl_, dim, true));
  }
  Tensor flatten(int64_t first = 0, int64_t last = -1) const {
    return adopted(kernelwright_flatten(impl_, first, last));
  }
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const {
    return adopted(kernelwright_narrow(impl_, dim, start, length));
  }
  Tensor select(int64_t dim, int64_t index) const {
    return adopted(kernelwright_select(impl_, dim, index));
  }
  Tensor operator[](int64_t index) const {
    return select(0, index);
  }
  Tensor slice(int64_t dim = 0, optional<int64_t> start = nullopt, optional<int64_t> end = nullopt,
               int64_t step = 1) const {
    const int has = (start ? 1 : 0) | (end ? 2 : 0);
    return adopted(kernelwright_slice(impl_, dim, start.value_or(0), end.value_or(0), has, step));
  }
  Tensor new_empty(IntArrayRef sizes, TensorOptions options = {}) const {
    return adopted(kernelwright_empty(span(sizes), merged(options)));
  }
  Tensor new_zeros(IntArrayRef sizes, TensorOptions options = {}) const {
    return adopted(kernelwright_zeros(span(sizes), merged(options)));
  }
  Tensor& copy_(const Tensor& source, bool non_blocking = false) const {
    kernelwright_copy(impl_, source.impl_, non_blocking);
    return const_cast<Tensor&>(*this);
  }
  Tensor& zero_() const {
    kernelwright_zero(impl_);
    return const_cast<Tensor&>(*this);
  }
  const Tensor& resize_(IntArrayRef sizes) const {
    kernelwright_resize(impl_, span(sizes));
    return *this;
  }
  Tensor& fill_(const Scalar& value) const {
    kernelwright_fill(impl_, value.value(), value.whole(), value.is_whole());
    return const_cast<Tensor&>(*this);
  }

 private:
  Tensor(void* impl, int) noexcept : impl_(impl) {}

  void require_dim(size_t wanted) const {
    TORCH_CHECK(dim() == static_cast<int64_t>(wanted), "TensorAccessor expected ", wanted, " dims but tensor has ",
                dim());
  }
  KernelwrightOptions merged(const TensorOptions& options) const {
    KernelwrightOptions made = options.given();
    const KernelwrightOptions mine = kernelwright_options(impl_);
    if (made.dtype < 0) made.dtype = mine.dtype;
    if (made.device_type < 0) {
      made.device_type = mine.device_type;
      made.device_index = mine.device_index;
    }
    made.requires_grad = -1;
    return made;
  }

  void* impl_;
};

using TensorList = ArrayRef<Tensor>;

inline Tensor empty(IntArrayRef sizes, TensorOptions options = {}, optional<MemoryFormat> format = nullopt) {
  if (format) options = options.memory_format(*format);
  return Tensor::adopted(kernelwright_empty(span(sizes), options.given()));
}
inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, TensorOptions options = {}) {
  return Tensor::adopted(kernelwright_empty_strided(span(sizes), span(strides), options.given()));
}
inline Tensor zeros(IntArrayRef sizes, TensorOptions options = {}) {
  return Tensor::adopted(kernelwright_zeros(span(sizes), options.given()));
}
inline Tensor ones(IntArrayRef sizes, TensorOptions options = {}) {
  return Tensor::adopted(kernelwright_ones(span(sizes), options.given()));
}
inline Tensor full(IntArrayRef sizes, const Scalar& value, TensorOptions options = {}) {
  return Tensor::adopted(
      kernelwright_full(span(sizes), value.value(), value.whole(), value.is_whole(), options.given()));
}
inline Tensor empty_like(const Tensor& like, TensorOptions options = {}, optional<MemoryFormat> format = nullopt) {
  if (format) options = options.memory_format(*format);
  return Tensor::adopted(kernelwright_empty_like(like.handle(), options.given()));
}
inline Tensor zeros_like(const Tensor& like, TensorOptions options = {}, optional<MemoryFormat> format = nullopt) {
  if (format) options = options.memory_format(*format);
  return Tensor::adopted(kernelwright_zeros_like(like.handle(), options.given()));
}
inline Tensor ones_like(const Tensor& like, TensorOptions options = {}, optional<MemoryFormat> format = nullopt) {
  if (format) options = options.memory_format(*format);
  return Tensor::adopted(kernelwright_ones_like(like.handle(), options.given()));
}
inline Tensor full_like(const Tensor& like, const Scalar& value, TensorOptions options = {}) {
  return Tensor::adopted(
      kernelwright_full_like(like.handle(), value.value(), value.whole(), value.is_whole(), options.given()));
}

inline optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? optional<Device>(tensor.device()) : nullopt;
}

}  // namespace light
}  // namespace c10

namespace at {
using namespace c10;
namespace cuda {}
namespace native {}
}  // namespace at

namespace torch {
using namespace at;
using Dtype = c10::ScalarType;
constexpr auto kUInt8 = c10::kByte;
constexpr auto kInt8 = c10::kChar;
constexpr auto kInt16 = c10::kShort;
constexpr auto kInt32 = c10::kInt;
constexpr auto kInt64 = c10::kLong;
constexpr auto kFloat16 = c10::kHalf;
constexpr auto kFloat32 = c10::kFloat;
constexpr auto kFloat64 = c10::kDouble;
}  // namespace torch
