"""The compiled kernel is plain C, loaded with ctypes: building needs no torch. Without a compiler it is left out."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "ringconv.ops._ring_conv",
            sources=["src/ringconv/ops/native/ring_conv.c"],
            depends=[
                "src/ringconv/ops/native/kernels.h",
                "src/ringconv/ops/native/ring_conv.h",
                "src/ringconv/ops/native/sweep.h",
            ],
            extra_compile_args=["-O3", "-std=c11"],
            optional=True,
        )
    ]
)
