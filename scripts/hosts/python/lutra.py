"""Lutra in Python by ctypes: states, functions and ops, arrays of NumPy and tensors of PyTorch shared by DLPack."""
import ctypes as c

_PyCapsule_New = c.pythonapi.PyCapsule_New
_PyCapsule_New.restype, _PyCapsule_New.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_PyCapsule_GetPointer = c.pythonapi.PyCapsule_GetPointer
_PyCapsule_GetPointer.restype, _PyCapsule_GetPointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_PyCapsule_IsValid = c.pythonapi.PyCapsule_IsValid
_PyCapsule_IsValid.restype, _PyCapsule_IsValid.argtypes = c.c_int, [c.c_void_p, c.c_char_p]
_PyCapsule_Pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))
_PyCapsule_SetName = c.pythonapi.PyCapsule_SetName
_PyCapsule_SetName.restype, _PyCapsule_SetName.argtypes = c.c_int, [c.py_object, c.c_char_p]

_OLD, _NEW = b"dltensor", b"dltensor_versioned"
_USED = {_OLD: b"used_dltensor", _NEW: b"used_dltensor_versioned"}  # capsules do not copy their names
_DEVICES = {"cpu": 1, "cuda": 2}


class _OldHead(c.Structure):  # of DLManagedTensor, up to its deleter
    _fields_ = [("tensor", c.c_char * 48), ("manager", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.c_void_p))]


class _NewHead(c.Structure):
    _fields_ = [("version", c.c_uint32 * 2), ("manager", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.c_void_p))]


@c.PYFUNCTYPE(None, c.c_void_p)
def _release(capsule):  # a capsule that nobody took
    for name, head in ((_OLD, _OldHead), (_NEW, _NewHead)):
        if _PyCapsule_IsValid(capsule, name):
            at = _PyCapsule_Pointer(capsule, name)
            head.from_address(at).deleter(at)


def _load():
    # LuaJIT's symbols are the host's to bring.
    c.CDLL("libluajit-5.1.so.2", mode=c.RTLD_GLOBAL)
    lib = c.CDLL("liblutra.so.1")
    p, pp = c.c_void_p, c.POINTER(c.c_void_p)
    for name, result, arguments in (
        ("open", p, [p]), ("close", None, [p]), ("error", c.c_char_p, [p]), ("abi", c.c_int, []),
        ("do_string", c.c_int, [p, c.c_char_p, c.c_char_p]), ("function", c.c_int, [p, c.c_char_p, pp]),
        ("function_free", None, [p]), ("invoke", c.c_int, [p, pp, c.c_int, pp, c.c_int]),
        ("op", c.c_int, [p, c.c_char_p, pp, c.c_int, pp, c.c_int]), ("tensor_free", None, [p]),
        ("tensor_device", c.c_char_p, [p]), ("tensor_to_dlpack", c.c_int, [p, pp]),
        ("tensor_to_dlpack_unversioned", c.c_int, [p, pp]), ("tensor_from_dlpack", c.c_int, [p, p, pp]),
        ("tensor_from_dlpack_unversioned", c.c_int, [p, p, pp]),
    ):
        f = getattr(lib, "lutra_" + name)
        f.restype, f.argtypes = result, arguments
    assert lib.lutra_abi() == 1
    return lib


_lib = _load()


class Error(RuntimeError):
    pass


def _check(code, state=None):
    if code != 0:
        raise Error(_lib.lutra_error(state).decode())


class Tensor:
    """Speaks DLPack: numpy.from_dlpack(t), torch.from_dlpack(t) share its memory."""

    def __init__(self, handle):
        self._handle = handle

    def __del__(self):
        _lib.lutra_tensor_free(self._handle)

    def __dlpack_device__(self):
        kind, _, index = _lib.lutra_tensor_device(self._handle).decode().partition(":")
        return _DEVICES[kind], int(index or 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("copies are the consumer's")
        out = c.c_void_p()
        new = max_version is not None and max_version[0] >= 1
        lend = _lib.lutra_tensor_to_dlpack if new else _lib.lutra_tensor_to_dlpack_unversioned
        _check(lend(self._handle, c.byref(out)))
        return _PyCapsule_New(out, _NEW if new else _OLD, c.cast(_release, c.c_void_p))


class State:
    def __init__(self):
        self._state = _lib.lutra_open(None)
        _check(0 if self._state else 1)

    def __del__(self):
        _lib.lutra_close(self._state)

    def run(self, text, name="=python"):
        _check(_lib.lutra_do_string(self._state, text.encode(), name.encode()), self._state)

    def tensor(self, array):
        """Over the memory of an array or tensor that speaks DLPack, without a copy."""
        if isinstance(array, Tensor):
            return array
        try:
            capsule = array.__dlpack__(max_version=(1, 1))
        except TypeError:  # older than version 1
            capsule = array.__dlpack__()
        new = _PyCapsule_IsValid(id(capsule), _NEW)
        name = _NEW if new else _OLD
        out = c.c_void_p()
        take = _lib.lutra_tensor_from_dlpack if new else _lib.lutra_tensor_from_dlpack_unversioned
        _check(take(self._state, _PyCapsule_GetPointer(capsule, name), c.byref(out)), self._state)
        _PyCapsule_SetName(capsule, _USED[name])
        return Tensor(out.value)

    def _call(self, call, inputs, outputs):
        tensors = [self.tensor(x) for x in inputs]
        handles = (c.c_void_p * len(tensors))(*[t._handle for t in tensors])
        results = (c.c_void_p * outputs)()
        _check(call(handles, len(tensors), results, outputs), self._state)
        found = [Tensor(h) if h else None for h in results]
        return found[0] if outputs == 1 else found

    def function(self, expression, outputs=1):
        """A Lua function as a Python one: arrays or tensors in, Tensors out."""
        f = c.c_void_p()
        _check(_lib.lutra_function(self._state, expression.encode(), c.byref(f)), self._state)
        return lambda *inputs: self._call(lambda *a: _lib.lutra_invoke(f, *a), inputs, outputs)

    def op(self, name, *inputs, outputs=1):
        return self._call(lambda *a: _lib.lutra_op(self._state, name.encode(), *a), inputs, outputs)
