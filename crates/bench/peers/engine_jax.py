"""JAX on the operations of the engine: compiled with jit, timed until the result is ready."""

from timing import arguments, report

options = arguments(seconds=0.01)

import jax
import jax.numpy as jnp

import engine

COMPILED = {
    "add": jax.jit(jnp.add),
    "mul": jax.jit(jnp.multiply),
    "relu": jax.jit(lambda a, b: jax.nn.relu(a)),
    "exp": jax.jit(lambda a, b: jnp.exp(a)),
    "tanh": jax.jit(lambda a, b: jnp.tanh(a)),
    "sigmoid": jax.jit(lambda a, b: jax.nn.sigmoid(a)),
    "gelu": jax.jit(lambda a, b: jax.nn.gelu(a, approximate=False)),
    "gelu_tanh": jax.jit(lambda a, b: jax.nn.gelu(a, approximate=True)),
    "sum": jax.jit(lambda a, b: a.sum()),
    "dot": jax.jit(jnp.dot),
    "softmax": jax.jit(lambda a, b: jax.nn.softmax(a)),
}
PRODUCT = jax.jit(jnp.matmul)
CHAIN = jax.jit(lambda x, w, b: jax.nn.gelu(x * w + b, approximate=False).sum())


def operations(name, a, b):
    run, a, b = COMPILED[name], jnp.asarray(a), jnp.asarray(b)
    return lambda: run(a, b).block_until_ready()


def product(a, b):
    a, b = jnp.asarray(a), jnp.asarray(b)
    return lambda: PRODUCT(a, b).block_until_ready()


def chain(x):
    x, w, b = jnp.asarray(x), jnp.asarray(x.copy()), jnp.asarray(x.copy())
    return lambda: CHAIN(x, w, b).block_until_ready()


rows = engine.measure(options, operations, product, chain)
report("engine", "jax", jax.__version__, rows, "jit, new outputs, block_until_ready; processors limited by affinity")
