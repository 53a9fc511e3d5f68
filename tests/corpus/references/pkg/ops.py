__all__ = [
    "rotate",  #! export pkg.ops.rotate
    "TABLE",  #! export pkg.ops.TABLE
]


def rotate(q, k):
    """Prose that names rotate is only a mention."""
    return q, k


TABLE = {"a": rotate}  #! read pkg.ops.rotate


def register(key):
    def inner(function):
        TABLE[key] = function  #! write pkg.ops.TABLE
        return function

    return inner
