"""The compiled kernel is plain C, loaded with ctypes: building needs no torch. Without a compiler it is left out."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = "src/ringconv/ops/native/"

setup(
    ext_modules=[
        Extension(
            "ringconv.ops._ring_conv",
            sources=[NATIVE + "ring_conv.c"],
            depends=sorted(str(header) for header in Path(NATIVE).glob("*.h")),
            extra_compile_args=["-O3", "-pthread", "-Wno-psabi"],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
