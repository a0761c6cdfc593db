"""The compiled kernel is plain C, loaded with ctypes: building needs no torch. Without a compiler it is left out."""

from setuptools import Extension, setup

NATIVE = "src/ringconv/ops/native/"

setup(
    ext_modules=[
        Extension(
            "ringconv.ops._ring_conv",
            sources=[NATIVE + "ring_conv.c"],
            depends=[NATIVE + header for header in ("kernels.h", "ring_conv.h", "sweep.h")],
            extra_compile_args=["-O3", "-pthread", "-Wno-psabi"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
