"""The few names of torch that small test packages build on, as source."""

TORCH = {
    "torch/__init__.py": "from . import nn\n",
    "torch/nn/__init__.py": "from .modules import *\nfrom . import functional\n",
    "torch/nn/functional.py": "def softmax(x, dim): ...\ndef dropout(x, p, training): ...\n",
    "torch/nn/modules/__init__.py": "from .module import Module\nfrom .all import *\n",
    "torch/nn/modules/module.py": "def _forward_unimplemented(self, *a):\n    raise NotImplementedError\n"
    "class Module:\n    forward = _forward_unimplemented\n",
    "torch/nn/modules/all.py": "from .module import Module\n"
    + "".join(
        f"class {name}(Module):\n    def forward(self, x): return x\n"
        for name in ("Linear", "Dropout", "ModuleList", "Sequential", "ModuleDict", "Identity", "ReLU")
    ),
}
