from pkg.ops import rotate

rotate(1, 2)
