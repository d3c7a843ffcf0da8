// Makes C++ functions callable from Python: what pybind11 and PyTorch's casters do for the argument types that
// candidates use, without their headers. Beyond pybind11, a parameter that is a pointer takes a tensor.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernelwright/tensor.h"

struct CUstream_st;

namespace pybind11 {
inline namespace light {

// Owns one reference.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    Py_XDECREF(object_);
  }
  PyObject* get() const {
    return object_;
  }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

// A Python error that is set already.
class PythonErrorIsSet {};

inline PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonErrorIsSet();
  return object;
}

// How a C++ type comes from Python (`load` answers whether the object fits) and goes back (`cast`, a new reference).
template <typename T, typename = void>
struct Caster;

template <>
struct Caster<c10::Tensor> {
  using Held = c10::Tensor;
  static std::string name() {
    return "torch.Tensor";
  }
  static bool load(PyObject* object, Held& held) {
    void* impl = kernelwright_unwrap(object);
    if (impl == nullptr) return false;
    held = c10::Tensor::adopted(impl);
    return true;
  }
  static PyObject* cast(const c10::Tensor& value) {
    return kernelwright_wrap(value.handle());
  }
};

template <>
struct Caster<bool> {
  using Held = bool;
  static std::string name() {
    return "bool";
  }
  static bool load(PyObject* object, Held& held) {
    const int truth = object == Py_None ? 0 : (Py_TYPE(object)->tp_as_number != nullptr &&
                                               Py_TYPE(object)->tp_as_number->nb_bool != nullptr
                                                   ? PyObject_IsTrue(object)
                                                   : -1);
    if (truth < 0) {
      PyErr_Clear();
      return false;
    }
    held = truth != 0;
    return true;
  }
  static PyObject* cast(bool value) {
    return PyBool_FromLong(value);
  }
};

// A char is a text of one character to pybind11; left to it.
template <typename T>
struct Caster<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>>> {
  using Held = T;
  static std::string name() {
    return "int";
  }
  static bool load(PyObject* object, Held& held) {
    if (PyFloat_Check(object)) return false;
    Owned whole(PyNumber_Index(object));
    if (whole.get() == nullptr) {
      PyErr_Clear();
      Owned number(PyNumber_Check(object) ? PyNumber_Long(object) : nullptr);
      if (number.get() == nullptr) {
        PyErr_Clear();
        return false;
      }
      return fits(number.get(), held);
    }
    return fits(whole.get(), held);
  }
  static PyObject* cast(T value) {
    if constexpr (std::is_unsigned_v<T>) return PyLong_FromUnsignedLongLong(value);
    return PyLong_FromLongLong(static_cast<long long>(value));
  }

 private:
  static bool fits(PyObject* number, Held& held) {
    if constexpr (std::is_unsigned_v<T>) {
      const unsigned long long value = PyLong_AsUnsignedLongLong(number);
      if (PyErr_Occurred() != nullptr || value > std::numeric_limits<T>::max()) {
        PyErr_Clear();
        return false;
      }
      held = static_cast<T>(value);
    } else {
      const long long value = PyLong_AsLongLong(number);
      if (PyErr_Occurred() != nullptr || value < std::numeric_limits<T>::min() ||
          value > std::numeric_limits<T>::max()) {
        PyErr_Clear();
        return false;
      }
      held = static_cast<T>(value);
    }
    return true;
  }
};

template <typename T>
struct Caster<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using Held = T;
  static std::string name() {
    return "float";
  }
  static bool load(PyObject* object, Held& held) {
    double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      Owned number(PyNumber_Check(object) ? PyNumber_Float(object) : nullptr);
      if (number.get() == nullptr) {
        PyErr_Clear();
        return false;
      }
      value = PyFloat_AsDouble(number.get());
    }
    held = static_cast<T>(value);
    return true;
  }
  static PyObject* cast(T value) {
    return PyFloat_FromDouble(value);
  }
};

template <>
struct Caster<std::string> {
  using Held = std::string;
  static std::string name() {
    return "str";
  }
  static bool load(PyObject* object, Held& held) {
    if (PyBytes_Check(object)) {
      held.assign(PyBytes_AS_STRING(object), static_cast<size_t>(PyBytes_GET_SIZE(object)));
      return true;
    }
    if (PyByteArray_Check(object)) {
      held.assign(PyByteArray_AS_STRING(object), static_cast<size_t>(PyByteArray_GET_SIZE(object)));
      return true;
    }
    if (!PyUnicode_Check(object)) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    held.assign(text, static_cast<size_t>(size));
    return true;
  }
  static PyObject* cast(const std::string& value) {
    return PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
  }
};

template <>
struct Caster<c10::ScalarType> {
  using Held = c10::ScalarType;
  static std::string name() {
    return "torch.dtype";
  }
  static bool load(PyObject* object, Held& held) {
    const int type = kernelwright_dtype_of(object);
    held = static_cast<c10::ScalarType>(type);
    return type >= 0;
  }
};

template <typename T>
struct Caster<std::vector<T>> {
  using Held = std::vector<T>;
  static std::string name() {
    return "list[" + Caster<T>::name() + "]";
  }
  static bool load(PyObject* object, Held& held) {
    if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) return false;
    Owned items(PySequence_Fast(object, "no sequence"));
    if (items.get() == nullptr) {
      PyErr_Clear();
      return false;
    }
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.get());
    for (Py_ssize_t i = 0; i < count; ++i) {
      typename Caster<T>::Held item{};
      if (!Caster<T>::load(PySequence_Fast_GET_ITEM(items.get(), i), item)) return false;
      held.push_back(std::move(item));
    }
    return true;
  }
  static PyObject* cast(const std::vector<T>& values) {
    Owned list(checked(PyList_New(static_cast<Py_ssize_t>(values.size()))));
    for (size_t i = 0; i < values.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), checked(Caster<T>::cast(values[i])));
    }
    return list.release();
  }
};

template <typename T>
struct Caster<c10::ArrayRef<T>> : Caster<std::vector<T>> {};

// PyTorch's own caster is stricter than pybind11's for vectors.
template <>
struct Caster<c10::ArrayRef<int64_t>> : Caster<std::vector<int64_t>> {
  static bool load(PyObject* object, Held& held) {
    if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(object, i);
      if (!PyLong_Check(item) && !kernelwright_is_tensor(item)) return false;
    }
    return Caster<std::vector<int64_t>>::load(object, held);
  }
};

template <typename T>
struct Caster<std::optional<T>> {
  using Held = std::optional<typename Caster<T>::Held>;
  static std::string name() {
    return Caster<T>::name() + " | None";
  }
  static bool load(PyObject* object, Held& held) {
    if (object == Py_None) return true;
    typename Caster<T>::Held value{};
    if (!Caster<T>::load(object, value)) return false;
    held = std::move(value);
    return true;
  }
  static PyObject* cast(const std::optional<T>& value) {
    if (value) return Caster<T>::cast(*value);
    Py_RETURN_NONE;
  }
};

template <typename Tuple, size_t... indices>
PyObject* cast_tuple(const Tuple& values, std::index_sequence<indices...>) {
  Owned tuple(checked(PyTuple_New(sizeof...(indices))));
  (PyTuple_SET_ITEM(
       tuple.get(), indices,
       checked(Caster<std::decay_t<std::tuple_element_t<indices, Tuple>>>::cast(std::get<indices>(values)))),
   ...);
  return tuple.release();
}

template <typename... Parts>
struct Caster<std::tuple<Parts...>> {
  static PyObject* cast(const std::tuple<Parts...>& values) {
    return cast_tuple(values, std::index_sequence_for<Parts...>());
  }
};

template <typename First, typename Second>
struct Caster<std::pair<First, Second>> {
  static PyObject* cast(const std::pair<First, Second>& values) {
    return cast_tuple(values, std::index_sequence<0, 1>());
  }
};

// The scalar type that elements of a pointer must have, by the names that CUDA's headers give to their types.
template <typename T, typename = void>
struct ElementType {
  static constexpr int value = -1;
};
template <typename T>
struct ElementType<T, std::void_t<decltype(c10::CppTypeToScalarType<T>::value)>> {
  static constexpr int value = static_cast<int>(c10::CppTypeToScalarType<T>::value);
};
}  // namespace light
}  // namespace pybind11

struct __half;
struct __nv_bfloat16;

namespace pybind11 {
inline namespace light {
template <>
struct ElementType<::__half> {
  static constexpr int value = static_cast<int>(c10::ScalarType::Half);
};
template <>
struct ElementType<::__nv_bfloat16> {
  static constexpr int value = static_cast<int>(c10::ScalarType::BFloat16);
};

// What pybind11 passes by pointer as an object of its own: no elements of a tensor.
template <typename T>
constexpr bool is_object = false;
template <>
inline constexpr bool is_object<c10::Tensor> = true;
template <>
inline constexpr bool is_object<std::string> = true;
template <typename T>
constexpr bool is_object<std::vector<T>> = true;
template <typename T>
constexpr bool is_object<std::optional<T>> = true;
template <typename T>
constexpr bool is_object<c10::ArrayRef<T>> = true;

// A tensor for a pointer to its elements: of the right type and contiguous, because a pointer says nothing of strides.
template <typename T>
struct Caster<T*, std::enable_if_t<!std::is_same_v<T, CUstream_st> && !std::is_same_v<T, const char> &&
                                   !is_object<std::remove_cv_t<T>>>> {
  using Held = T*;
  static std::string name() {
    return "torch.Tensor";
  }
  static bool load(PyObject* object, Held& held) {
    held = nullptr;
    if (object == Py_None) return true;
    void* impl = kernelwright_unwrap(object);
    if (impl == nullptr) return false;
    const c10::Tensor tensor = c10::Tensor::adopted(impl);
    constexpr int wanted = ElementType<std::remove_cv_t<T>>::value;
    if constexpr (wanted >= 0) {
      const auto type = static_cast<c10::ScalarType>(wanted);
      TORCH_CHECK_TYPE(tensor.scalar_type() == type, "a pointer to ", type, " was given a tensor of ",
                       tensor.scalar_type());
    }
    TORCH_CHECK_VALUE(tensor.is_contiguous(),
                      "a pointer was given a tensor that is not contiguous, of the sizes ", tensor.sizes(),
                      " and strides ", tensor.strides(), "; call .contiguous() first");
    held = static_cast<T*>(kernelwright_data_ptr(impl, -1, std::is_const_v<T>));
    return true;
  }
};

// A stream is not passed by the caller: it is the current one.
template <>
struct Caster<CUstream_st*> {
  using Held = CUstream_st*;
  static std::string name() {
    return "the current stream";
  }
};

struct arg_v {
  const char* name;
  PyObject* value;
};

struct none {};

struct arg {
  explicit constexpr arg(const char* given) : name(given) {}
  template <typename T>
  arg_v operator=(T&& value) const {
    return {name, checked(Caster<std::decay_t<T>>::cast(value))};
  }
  arg_v operator=(const char* value) const {
    return {name, checked(Caster<std::string>::cast(value))};
  }
  arg_v operator=(none) const {
    Py_INCREF(Py_None);
    return {name, Py_None};
  }
  arg_v operator=(std::nullopt_t) const {
    return *this = none();
  }
  const char* name;
};

namespace literals {
constexpr arg operator""_a(const char* name, size_t) {
  return arg(name);
}
}  // namespace literals

// One function that Python can call.
class Callable {
 public:
  explicit Callable(const char* name) : name_(name) {}
  virtual ~Callable() = default;
  virtual PyObject* call(PyObject* arguments, PyObject* keywords) const = 0;

  void add(const char* doc) {
    doc_ = doc;
  }
  void add(const arg& named) {
    parameters_.push_back({named.name, nullptr});
  }
  void add(const arg_v& named) {
    parameters_.push_back(named);
  }
  void handle_errors(bool handled) {
    handles_errors_ = handled;
  }
  bool handles_errors() const {
    return handles_errors_;
  }
  const char* name() const {
    return name_.c_str();
  }
  const char* doc() const {
    return doc_.c_str();
  }

 protected:
  // The argument for a parameter, borrowed; null where there is none.
  PyObject* argument(size_t index, PyObject* arguments, PyObject* keywords) const {
    if (index < static_cast<size_t>(PyTuple_GET_SIZE(arguments))) return PyTuple_GET_ITEM(arguments, index);
    if (index >= parameters_.size()) return nullptr;
    PyObject* given = keywords == nullptr ? nullptr : PyDict_GetItemString(keywords, parameters_[index].name);
    return given != nullptr ? given : parameters_[index].value;
  }

  // Whether every argument has a parameter, and no parameter two.
  bool accepted(size_t count, PyObject* arguments, PyObject* keywords) const {
    const auto positional = static_cast<size_t>(PyTuple_GET_SIZE(arguments));
    if (positional > count) return false;
    if (keywords == nullptr) return true;
    size_t used = 0;
    for (size_t i = positional; i < parameters_.size(); ++i) {
      if (PyDict_GetItemString(keywords, parameters_[i].name) != nullptr) ++used;
    }
    return used == static_cast<size_t>(PyDict_Size(keywords));
  }

  [[noreturn]] void refuse(const std::vector<std::string>& types, PyObject* arguments, PyObject* keywords) const {
    std::string text = name_ + "(): incompatible function arguments. The following argument types are supported:\n    1. (";
    for (size_t i = 0; i < types.size(); ++i) {
      if (i != 0) text += ", ";
      text += (i < parameters_.size() ? std::string(parameters_[i].name) : "arg" + std::to_string(i)) + ": " + types[i];
    }
    text += ")\n\nInvoked with: ";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i) {
      if (i != 0) text += ", ";
      text += Py_TYPE(PyTuple_GET_ITEM(arguments, i))->tp_name;
    }
    if (keywords != nullptr && PyDict_Size(keywords) > 0) {
      text += "; kwargs: ";
      PyObject *key = nullptr, *value = nullptr;
      for (Py_ssize_t at = 0; PyDict_Next(keywords, &at, &key, &value);) {
        const char* name = PyUnicode_AsUTF8(key);
        text += std::string(name == nullptr ? "?" : name) + "=" + Py_TYPE(value)->tp_name + " ";
      }
    }
    PyErr_SetString(PyExc_TypeError, text.c_str());
    throw PythonErrorIsSet();
  }

 private:
  std::string name_;
  std::string doc_;
  std::vector<arg_v> parameters_;
  bool handles_errors_ = false;
};

template <typename T>
constexpr bool is_stream = std::is_same_v<std::decay_t<T>, CUstream_st*>;

template <typename Function, typename Result, typename... Parameters>
class Bound final : public Callable {
 public:
  Bound(const char* name, Function function) : Callable(name), function_(std::move(function)) {}

  PyObject* call(PyObject* arguments, PyObject* keywords) const override {
    return call_with(arguments, keywords, std::index_sequence_for<Parameters...>());
  }

 private:
  static constexpr std::array<bool, sizeof...(Parameters) + 1> streams_{is_stream<Parameters>..., false};
  static constexpr size_t count_ = sizeof...(Parameters) - (size_t{0} + ... + (is_stream<Parameters> ? 1 : 0));

  // The caller's index of a parameter: streams are not counted.
  static constexpr size_t position(size_t index) {
    size_t before = 0;
    for (size_t i = 0; i < index; ++i) before += streams_[i] ? 0 : 1;
    return before;
  }

  template <size_t... indices>
  PyObject* call_with(PyObject* arguments, PyObject* keywords, std::index_sequence<indices...>) const {
    std::tuple<typename Caster<std::decay_t<Parameters>>::Held...> held;
    if (!accepted(count_, arguments, keywords) ||
        !(true && ... && load<Parameters>(position(indices), arguments, keywords, std::get<indices>(held)))) {
      std::vector<std::string> types;
      ((is_stream<Parameters> ? void() : types.push_back(Caster<std::decay_t<Parameters>>::name())), ...);
      refuse(types, arguments, keywords);
    }
    if constexpr (std::is_void_v<Result>) {
      function_(static_cast<Parameters&&>(std::get<indices>(held))...);
      Py_RETURN_NONE;
    } else {
      return Caster<std::decay_t<Result>>::cast(function_(static_cast<Parameters&&>(std::get<indices>(held))...));
    }
  }

  template <typename Parameter, typename Held>
  bool load(size_t index, PyObject* arguments, PyObject* keywords, Held& held) const {
    if constexpr (is_stream<Parameter>) {
      held = static_cast<CUstream_st*>(kernelwright_current_stream(-1));
      return true;
    } else {
      PyObject* object = argument(index, arguments, keywords);
      return object != nullptr && Caster<std::decay_t<Parameter>>::load(object, held);
    }
  }

  Function function_;
};

template <typename Result, typename... Parameters>
Callable* bound(const char* name, Result (*function)(Parameters...)) {
  return new Bound<Result (*)(Parameters...), Result, Parameters...>(name, function);
}
template <typename Function, typename Class, typename Result, typename... Parameters>
Callable* bound_by(const char* name, Function function, Result (Class::*)(Parameters...) const) {
  return new Bound<Function, Result, Parameters...>(name, std::move(function));
}
template <typename Function, typename = decltype(&Function::operator())>
Callable* bound(const char* name, Function function) {
  return bound_by(name, std::move(function), &Function::operator());
}

inline PyObject* call_callable(const void* callable, PyObject* arguments, PyObject* keywords) {
  return static_cast<const Callable*>(callable)->call(arguments, keywords);
}

inline PyObject* call_bound(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto* callable = static_cast<const Callable*>(PyCapsule_GetPointer(self, nullptr));
  if (callable == nullptr) return nullptr;
  try {
    if (!callable->handles_errors()) return callable->call(arguments, keywords);
    return kernelwright_call_with_warnings(&call_callable, callable, arguments, keywords);
  } catch (const PythonErrorIsSet&) {
    return nullptr;
  } catch (...) {
    kernelwright_set_python_error(callable->handles_errors());
    return nullptr;
  }
}

// A module while it is filled. What is bound lives as long as the process, as the library does.
class module_ {
 public:
  explicit module_(PyObject* module) : module_object_(module) {}

  // From here on functions are bound as torch::wrap_pybind_function would.
  void handle_errors() {
    handles_errors_ = true;
  }

  template <typename Function, typename... Extras>
  module_& def(const char* name, Function function, const Extras&... extras) {
    Callable* callable = bound(name, std::move(function));
    (callable->add(extras), ...);
    callable->handle_errors(handles_errors_);
    auto* method = new PyMethodDef{callable->name(), reinterpret_cast<PyCFunction>(
                                                         reinterpret_cast<void (*)()>(&call_bound)),
                                   METH_VARARGS | METH_KEYWORDS, callable->doc()};
    Owned self(checked(PyCapsule_New(callable, nullptr, nullptr)));
    Owned function_object(checked(PyCFunction_NewEx(method, self.get(), nullptr)));
    if (PyObject_SetAttrString(module_object_, name, function_object.get()) != 0) throw PythonErrorIsSet();
    return *this;
  }

  class Doc {
   public:
    explicit Doc(PyObject* module) : module_object_(module) {}
    Doc& operator=(const char* text) {
      Owned value(checked(PyUnicode_FromString(text)));
      if (PyObject_SetAttrString(module_object_, "__doc__", value.get()) != 0) throw PythonErrorIsSet();
      return *this;
    }

   private:
    PyObject* module_object_;
  };
  Doc doc() {
    return Doc(module_object_);
  }

 private:
  PyObject* module_object_;
  bool handles_errors_ = false;
};
using module = module_;

inline PyObject* made_module(PyModuleDef* definition, void (*fill)(module_&)) {
  Owned made(PyModule_Create(definition));
  if (made.get() == nullptr) return nullptr;
  try {
    module_ filled(made.get());
    fill(filled);
  } catch (const PythonErrorIsSet&) {
    return nullptr;
  } catch (...) {
    kernelwright_set_python_error(false);
    return nullptr;
  }
  return made.release();
}

}  // namespace light
}  // namespace pybind11

namespace py = pybind11;

#define KERNELWRIGHT_JOINED_TEXT(left, right) left##right
#define KERNELWRIGHT_JOINED(left, right) KERNELWRIGHT_JOINED_TEXT(left, right)
#define KERNELWRIGHT_QUOTED_TEXT(name) #name
#define KERNELWRIGHT_QUOTED(name) KERNELWRIGHT_QUOTED_TEXT(name)
#define PYBIND11_MODULE(name, variable)                                                                         \
  static void KERNELWRIGHT_JOINED(kernelwright_fill_, name)(::pybind11::module_&);                              \
  extern "C" __attribute__((visibility("default"))) PyObject* KERNELWRIGHT_JOINED(PyInit_, name)() {            \
    static PyModuleDef definition{PyModuleDef_HEAD_INIT, KERNELWRIGHT_QUOTED(name), nullptr, -1, nullptr, nullptr, \
                                  nullptr, nullptr, nullptr};                                                   \
    return ::pybind11::made_module(&definition, &KERNELWRIGHT_JOINED(kernelwright_fill_, name));                \
  }                                                                                                             \
  void KERNELWRIGHT_JOINED(kernelwright_fill_, name)(::pybind11::module_ & variable)
