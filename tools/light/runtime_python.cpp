// The functions of kernelwright/runtime.h that deal with Python's objects, errors and warnings, by PyTorch. Its casters
// of tensors do what torch/csrc/autograd/python_variable.h would, which takes half as long again to compile.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <new>
#include <stdexcept>

#include "pytorch_values.h"

using TensorCaster = pybind11::detail::type_caster<at::Tensor>;

namespace {

// What pybind11 makes of the standard library's exceptions; null stands for its RuntimeError.
PyObject* pybind_error_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return PyExc_MemoryError;
  if (dynamic_cast<const std::out_of_range*>(&error) != nullptr) return PyExc_IndexError;
  if (dynamic_cast<const std::overflow_error*>(&error) != nullptr) return PyExc_OverflowError;
  const bool of_value = dynamic_cast<const std::domain_error*>(&error) != nullptr ||
                        dynamic_cast<const std::invalid_argument*>(&error) != nullptr ||
                        dynamic_cast<const std::length_error*>(&error) != nullptr ||
                        dynamic_cast<const std::range_error*>(&error) != nullptr;
  return of_value ? PyExc_ValueError : nullptr;
}

}  // namespace

void* kernelwright_unwrap(PyObject* object) noexcept {
  TensorCaster caster;
  if (!caster.load(object, false)) return nullptr;
  return handed_over(static_cast<at::Tensor&>(caster));
}

bool kernelwright_is_tensor(PyObject* object) noexcept {
  return TensorCaster().load(object, false);
}

PyObject* kernelwright_wrap(void* tensor) {
  return TensorCaster::cast(of(tensor), pybind11::return_value_policy::move, {}).ptr();
}

void kernelwright_set_python_error(bool handled) noexcept {
  try {
    throw;
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const torch::PyTorchError&) {
    torch::translate_exception_to_python(std::current_exception());
  } catch (const std::exception& error) {
    PyObject* type = handled ? nullptr : pybind_error_of(error);
    if (type == nullptr) {
      torch::translate_exception_to_python(std::current_exception());
    } else {
      PyErr_SetString(type, error.what());
    }
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

PyObject* kernelwright_call_with_warnings(PyObject* (*call)(const void*, PyObject*, PyObject*), const void* callable,
                                          PyObject* arguments, PyObject* keywords) {
  torch::PyWarningHandler warnings;
  try {
    return call(callable, arguments, keywords);
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

int kernelwright_dtype_of(PyObject* object) noexcept {
  return THPDtype_Check(object) ? static_cast<int>(reinterpret_cast<THPDtype*>(object)->scalar_type) : -1;
}
