// The small types of PyTorch's C++ interface: scalar types, devices, options, array references, error messages.
// They live in an inline namespace, so that their symbols are never PyTorch's.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernelwright/runtime.h"

// Where the light headers include PyTorch's Half, these are defined already.
#if !defined(C10_HOST_DEVICE)
#if defined(__CUDACC__)
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif
#define C10_LIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 1))
#define C10_UNLIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 0))
#define C10_ALWAYS_INLINE __attribute__((__always_inline__)) inline
#define C10_UNUSED [[maybe_unused]]
#define C10_RESTRICT __restrict
#endif

namespace c10 {
struct Half;
struct BFloat16;

inline namespace light {

using std::nullopt;
using std::nullopt_t;
using std::optional;

using DeviceIndex = int8_t;

enum class ScalarType : int8_t {
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Double = 7,
  ComplexHalf = 8,
  ComplexFloat = 9,
  ComplexDouble = 10,
  Bool = 11,
  BFloat16 = 15,
  Float8_e5m2 = 23,
  Float8_e4m3fn = 24,
};

constexpr ScalarType kByte = ScalarType::Byte;
constexpr ScalarType kChar = ScalarType::Char;
constexpr ScalarType kShort = ScalarType::Short;
constexpr ScalarType kInt = ScalarType::Int;
constexpr ScalarType kLong = ScalarType::Long;
constexpr ScalarType kHalf = ScalarType::Half;
constexpr ScalarType kFloat = ScalarType::Float;
constexpr ScalarType kDouble = ScalarType::Double;
constexpr ScalarType kBool = ScalarType::Bool;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16;

inline const char* toString(ScalarType type) {
  return kernelwright_type_name(static_cast<int>(type));
}
inline size_t elementSize(ScalarType type) {
  return kernelwright_type_size(static_cast<int>(type));
}
inline bool isFloatingType(ScalarType type) {
  return kernelwright_type_is_floating(static_cast<int>(type));
}

// The types of elements that have a C++ type here.
#define KERNELWRIGHT_TYPES(_)\
  _(uint8_t, Byte)           \
  _(int8_t, Char)            \
  _(int16_t, Short)          \
  _(int, Int)                \
  _(int64_t, Long)           \
  _(c10::Half, Half)         \
  _(float, Float)            \
  _(double, Double)          \
  _(bool, Bool)              \
  _(c10::BFloat16, BFloat16)

// Which scalar type a C++ type stands for; left out for types that no tensor holds, so that using one does not compile.
template <typename T>
struct CppTypeToScalarType;

#define KERNELWRIGHT_STANDS_FOR(type, name)                    \
  template <>                                                  \
  struct CppTypeToScalarType<type> {                           \
    static constexpr ScalarType value = ScalarType::name;      \
  };                                                           \
  template <>                                                  \
  struct CppTypeToScalarType<const type> {                     \
    static constexpr ScalarType value = ScalarType::name;      \
  };
KERNELWRIGHT_TYPES(KERNELWRIGHT_STANDS_FOR)
#undef KERNELWRIGHT_STANDS_FOR

namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;

#define KERNELWRIGHT_STANDS_FOR(cpp_type, name)   \
  template <>                                     \
  struct ScalarTypeToCPPType<ScalarType::name> {  \
    using type = cpp_type;                        \
  };
KERNELWRIGHT_TYPES(KERNELWRIGHT_STANDS_FOR)
#undef KERNELWRIGHT_STANDS_FOR

template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 8 };
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
constexpr DeviceType kMeta = DeviceType::Meta;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  DeviceType type() const noexcept {
    return type_;
  }
  DeviceIndex index() const noexcept {
    return index_;
  }
  bool has_index() const noexcept {
    return index_ != -1;
  }
  bool is_cuda() const noexcept {
    return type_ == DeviceType::CUDA;
  }
  bool is_cpu() const noexcept {
    return type_ == DeviceType::CPU;
  }
  bool operator==(const Device& other) const noexcept {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const noexcept {
    return !(*this == other);
  }
  std::string str() const {
    std::string text = type_ == DeviceType::CUDA ? "cuda" : (type_ == DeviceType::CPU ? "cpu" : "meta");
    if (has_index()) text += ":" + std::to_string(static_cast<int>(index_));
    return text;
  }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

enum class Layout : int8_t { Strided = 0 };
constexpr Layout kStrided = Layout::Strided;

// What Tensor::dtype() answers; it converts to the scalar type wherever that is asked for.
class TypeMeta {
 public:
  TypeMeta(ScalarType type) : type_(type) {}
  ScalarType toScalarType() const {
    return type_;
  }
  size_t itemsize() const {
    return elementSize(type_);
  }
  friend bool operator==(const TypeMeta& left, const TypeMeta& right) {
    return left.type_ == right.type_;
  }
  friend bool operator!=(const TypeMeta& left, const TypeMeta& right) {
    return left.type_ != right.type_;
  }
  std::string name() const {
    const KernelwrightText text = kernelwright_cpp_type_name(static_cast<int>(type_));
    return std::string(text.data, text.size);
  }

 private:
  ScalarType type_;
};

inline ScalarType typeMetaToScalarType(TypeMeta type) {
  return type.toScalarType();
}

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) {
    given_.dtype = static_cast<int>(type);
  }
  TensorOptions(TypeMeta type) : TensorOptions(type.toScalarType()) {}
  TensorOptions(Device device) {
    given_.device_type = static_cast<int>(device.type());
    given_.device_index = device.index();
  }
  TensorOptions(DeviceType type) : TensorOptions(Device(type)) {}
  TensorOptions(Layout) {}
  TensorOptions(MemoryFormat format) {
    given_.memory_format = static_cast<int>(format);
  }
  explicit TensorOptions(KernelwrightOptions given) : given_(given) {}

  [[nodiscard]] TensorOptions dtype(ScalarType type) const {
    TensorOptions made = *this;
    made.given_.dtype = static_cast<int>(type);
    return made;
  }
  [[nodiscard]] TensorOptions dtype(TypeMeta type) const {
    return dtype(type.toScalarType());
  }
  template <typename T>
  [[nodiscard]] TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  [[nodiscard]] TensorOptions device(Device device) const {
    TensorOptions made = *this;
    made.given_.device_type = static_cast<int>(device.type());
    made.given_.device_index = device.index();
    return made;
  }
  [[nodiscard]] TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
    return device(Device(type, index));
  }
  [[nodiscard]] TensorOptions device_index(DeviceIndex index) const {
    return device(DeviceType::CUDA, index);
  }
  [[nodiscard]] TensorOptions layout(Layout) const {
    return *this;
  }
  [[nodiscard]] TensorOptions requires_grad(bool requires_grad) const {
    TensorOptions made = *this;
    made.given_.requires_grad = requires_grad;
    return made;
  }
  [[nodiscard]] TensorOptions pinned_memory(bool pinned_memory) const {
    TensorOptions made = *this;
    made.given_.pinned_memory = pinned_memory;
    return made;
  }
  [[nodiscard]] TensorOptions memory_format(MemoryFormat format) const {
    TensorOptions made = *this;
    made.given_.memory_format = static_cast<int>(format);
    return made;
  }
  Device device() const {
    if (given_.device_type < 0) return Device(DeviceType::CPU);
    return Device(static_cast<DeviceType>(given_.device_type), static_cast<DeviceIndex>(given_.device_index));
  }
  TypeMeta dtype() const {
    return given_.dtype < 0 ? ScalarType::Float : static_cast<ScalarType>(given_.dtype);
  }
  const KernelwrightOptions& given() const {
    return given_;
  }

 private:
  KernelwrightOptions given_{-1, -1, -1, -1, -1, -1};
};

inline TensorOptions dtype(ScalarType type) {
  return TensorOptions().dtype(type);
}
template <typename T>
TensorOptions dtype() {
  return TensorOptions().dtype<T>();
}
inline TensorOptions device(Device device) {
  return TensorOptions().device(device);
}

template <typename... Parts>
[[noreturn]] void fail(int kind, const char* function, const char* file, uint32_t line, const char* otherwise,
                       const Parts&... parts);

template <typename T>
class ArrayRef {
 public:
  using value_type = T;
  using iterator = const T*;
  using const_iterator = const T*;

  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& only) : data_(&only), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  ArrayRef(const std::vector<T>& all) : data_(all.data()), size_(all.size()) {}
  template <size_t count>
  constexpr ArrayRef(const std::array<T, count>& all) : data_(all.data()), size_(count) {}
  template <size_t count>
  constexpr ArrayRef(const T (&all)[count]) : data_(all), size_(count) {}
  constexpr ArrayRef(const std::initializer_list<T>& all)
      : data_(all.begin() == all.end() ? nullptr : all.begin()), size_(all.size()) {}

  constexpr const T* begin() const {
    return data_;
  }
  constexpr const T* end() const {
    return data_ + size_;
  }
  constexpr const T* data() const {
    return data_;
  }
  constexpr size_t size() const {
    return size_;
  }
  constexpr bool empty() const {
    return size_ == 0;
  }
  constexpr const T& operator[](size_t index) const {
    return data_[index];
  }
  const T& at(size_t index) const {
    if (index >= size_) refuse("ArrayRef: invalid index Index = ", index, "; Length = ", size_);
    return data_[index];
  }
  const T& front() const {
    if (empty()) refuse("ArrayRef: attempted to access front() of empty list");
    return data_[0];
  }
  const T& back() const {
    if (empty()) refuse("ArrayRef: attempted to access back() of empty list");
    return data_[size_ - 1];
  }
  ArrayRef slice(size_t first, size_t count) const {
    if (first + count > size_) refuse("ArrayRef: invalid slice, N = ", first, "; M = ", count, "; size = ", size_);
    return ArrayRef(data_ + first, count);
  }
  ArrayRef slice(size_t first) const {
    if (first > size_) refuse("ArrayRef: invalid slice, N = ", first, "; size = ", size_);
    return slice(first, size_ - first);
  }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i) {
      if (!(data_[i] == other.data_[i])) return false;
    }
    return true;
  }
  std::vector<T> vec() const {
    return std::vector<T>(data_, data_ + size_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] static void refuse(const Parts&... parts) {
    fail(0, "ArrayRef", __FILE__, 0, "", parts...);
  }

  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
bool operator==(ArrayRef<T> left, ArrayRef<T> right) {
  return left.equals(right);
}
template <typename T>
bool operator!=(ArrayRef<T> left, ArrayRef<T> right) {
  return !left.equals(right);
}
template <typename T>
bool operator==(ArrayRef<T> left, const std::vector<T>& right) {
  return left.equals(ArrayRef<T>(right));
}
template <typename T>
bool operator!=(ArrayRef<T> left, const std::vector<T>& right) {
  return !left.equals(ArrayRef<T>(right));
}
template <typename T>
bool operator==(const std::vector<T>& left, ArrayRef<T> right) {
  return right.equals(ArrayRef<T>(left));
}
template <typename T>
bool operator!=(const std::vector<T>& left, ArrayRef<T> right) {
  return !right.equals(ArrayRef<T>(left));
}

using IntArrayRef = ArrayRef<int64_t>;

inline KernelwrightSpan span(IntArrayRef all) {
  return {all.data(), all.size()};
}

// A number as an argument, whole or not.
class Scalar {
 public:
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  Scalar(T value) : value_(static_cast<double>(value)), whole_(static_cast<int64_t>(value)), is_whole_(true) {
    static_assert(!std::is_same_v<T, bool>, "a bool is no number here");
  }
  template <typename T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
  Scalar(T value) : value_(static_cast<double>(value)), whole_(0), is_whole_(false) {}
  double value() const {
    return value_;
  }
  int64_t whole() const {
    return whole_;
  }
  bool is_whole() const {
    return is_whole_;
  }

 private:
  double value_;
  int64_t whole_;
  bool is_whole_;
};

// Appends as an output stream would; the headers of std::ostream itself would be read for nothing else.
namespace message {
inline void append(std::string& text, const char* value) {
  text += value;
}
inline void append(std::string& text, const std::string& value) {
  text += value;
}
// A template: else pointers would be taken for the truth that they convert to.
template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
void append(std::string& text, T value) {
  if constexpr (sizeof(T) == 1 && !std::is_same_v<T, bool>) {
    text += static_cast<char>(value);
  } else {
    text += std::to_string(value);
  }
}
// CUDA's error codes, for example, which a stream prints as numbers.
template <typename T, std::enable_if_t<std::is_enum_v<T> && std::is_convertible_v<T, int64_t>, int> = 0>
void append(std::string& text, T value) {
  text += std::to_string(+value);
}
template <typename T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
void append(std::string& text, T value) {
  char printed[40];
  std::snprintf(printed, sizeof printed, "%Lg", static_cast<long double>(value));
  text += printed;
}
inline void append(std::string& text, ScalarType value) {
  text += toString(value);
}
inline void append(std::string& text, TypeMeta value) {
  text += value.name();
}
inline void append(std::string& text, const Device& value) {
  text += value.str();
}
inline void append(std::string& text, DeviceType value) {
  text += Device(value).str();
}
template <typename T>
void append(std::string& text, ArrayRef<T> values) {
  text += "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text += ", ";
    append(text, values[i]);
  }
  text += "]";
}

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::string text;
  (append(text, parts), ...);
  return text;
}

// What a comparison that failed is told, and what is streamed after it; throws at the end of the statement. PyTorch's
// own puts the time and the line before it, and prints it, too.
class ComparisonFailed {
 public:
  ComparisonFailed(const char* function, const char* file, uint32_t line)
      : function_(function), file_(file), line_(line) {}
  ~ComparisonFailed() noexcept(false) {
    kernelwright_throw(0, function_, file_, line_, text_.c_str());
  }
  template <typename T>
  ComparisonFailed& operator<<(const T& value) {
    append(text_, value);
    return *this;
  }

 private:
  const char* function_;
  const char* file_;
  uint32_t line_;
  std::string text_;
};

// Binds less tightly than <<, and more tightly than the two branches of ?: that must be void.
struct Void {
  void operator&(const ComparisonFailed&) {}
};
}  // namespace message

template <typename... Parts>
[[noreturn]] void fail(int kind, const char* function, const char* file, uint32_t line, const char* otherwise,
                       const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) {
    kernelwright_throw(kind, function, file, line, otherwise);
  } else {
    kernelwright_throw(kind, function, file, line, message::joined(parts...).c_str());
  }
}

}  // namespace light
}  // namespace c10

#define KERNELWRIGHT_CHECK(kind, cond, ...)                                                                    \
  do {                                                                                                         \
    if (C10_UNLIKELY(!(cond))) {                                                                               \
      ::c10::fail(kind, __func__, __FILE__, static_cast<uint32_t>(__LINE__),                                   \
                  "Expected " #cond                                                                            \
                  " to be true, but got false.  (Could this error message be improved?  If so, please report " \
                  "an enhancement request to PyTorch.)" __VA_OPT__(, ) __VA_ARGS__);                           \
    }                                                                                                          \
  } while (false)
#define TORCH_CHECK(cond, ...) KERNELWRIGHT_CHECK(0, cond __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) KERNELWRIGHT_CHECK(1, cond __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) KERNELWRIGHT_CHECK(2, cond __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) KERNELWRIGHT_CHECK(3, cond __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) KERNELWRIGHT_CHECK(4, cond __VA_OPT__(, ) __VA_ARGS__)
#define KERNELWRIGHT_FAILED ::c10::message::ComparisonFailed(__func__, __FILE__, static_cast<uint32_t>(__LINE__))
#define KERNELWRIGHT_COMPARE(left, right, op)                                                     \
  ((left)op(right)) ? (void)0                                                                     \
                    : ::c10::message::Void() &                                                    \
                          KERNELWRIGHT_FAILED << "Check failed: " #left " " #op " " #right " ("   \
                                              << (left) << " vs. " << (right) << "). "
#define TORCH_CHECK_EQ(left, right) KERNELWRIGHT_COMPARE(left, right, ==)
#define TORCH_CHECK_NE(left, right) KERNELWRIGHT_COMPARE(left, right, !=)
#define TORCH_CHECK_LE(left, right) KERNELWRIGHT_COMPARE(left, right, <=)
#define TORCH_CHECK_LT(left, right) KERNELWRIGHT_COMPARE(left, right, <)
#define TORCH_CHECK_GE(left, right) KERNELWRIGHT_COMPARE(left, right, >=)
#define TORCH_CHECK_GT(left, right) KERNELWRIGHT_COMPARE(left, right, >)
#define AT_ASSERTM(cond, ...) TORCH_CHECK(cond __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) ::c10::fail(0, __func__, __FILE__, static_cast<uint32_t>(__LINE__), "" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_WARN(...)                                                           \
  kernelwright_warn(__func__, __FILE__, static_cast<uint32_t>(__LINE__),          \
                    ::c10::message::joined(__VA_ARGS__).c_str())
