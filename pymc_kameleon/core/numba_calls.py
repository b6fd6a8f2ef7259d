"""Calls of machine code by its address, from compiled code."""

from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_new_ref
from numba.core.registry import cpu_target
from numba.extending import intrinsic


def overloads_of(function):
    """Return the functions that give numba a plain function's implementation, if there are any."""
    context = cpu_target.typing_context
    context.refresh()
    try:
        kind = context.resolve_value_type(function)
    except ValueError:
        return []
    templates = getattr(kind, "templates", ())
    return [
        template._overload_func for template in templates if hasattr(template, "_overload_func")
    ]


def address_of(dispatcher, signature):
    """Return where the machine code of `dispatcher` is, and what it returns.

    It is the entry with numba's own calling convention, so that an exception raised inside reaches
    the caller. Valid as long as `dispatcher` lives.
    """
    if signature not in dispatcher.overloads:
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address, compiled.signature.return_type


def caller(returned, taken):
    """Return what calls machine code from compiled code: call(address, arguments).

    Parameters
    ----------
    returned : numba type
    taken : tuple of numba types
        Of the arguments, which are passed as a tuple. A function of ``*arguments`` takes one
        argument, a `StarArgTuple`.
    """
    packed = len(taken) == 1 and isinstance(taken[0], types.StarArgTuple | types.StarArgUniTuple)

    @intrinsic
    def call(typing_context, address, arguments):
        expected = taken[0] if packed else taken
        if tuple(arguments) != tuple(expected):
            raise TypeError(f"The arguments are {arguments}, and must be {expected}.")

        def generate(context, builder, signature, values):
            function_type = context.call_conv.get_function_type(returned, taken)
            function = builder.inttoptr(values[0], function_type.as_pointer())
            passed = [values[1]] if packed else cgutils.unpack_tuple(builder, values[1])
            status, result = context.call_conv.call_function(
                builder, function, returned, taken, passed
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return impl_ret_new_ref(context, builder, returned, result)

        return returned(types.int64, arguments), generate

    return call
