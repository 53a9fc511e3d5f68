import flax.linen as nn
import jax
import jax.numpy as jnp
from absl import flags

flags.DEFINE_integer("width", 8, "Width of the layers.")


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(jnp.tanh(x))


@jax.jit
def apply(params, x):
    return Mlp().apply(params, x)


def scan(step, state, xs):
    return jax.lax.scan(step, state, xs)
