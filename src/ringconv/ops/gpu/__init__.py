"""The fused ring convolution on a GPU, in Triton. Triton is imported when a kernel is about to run."""
