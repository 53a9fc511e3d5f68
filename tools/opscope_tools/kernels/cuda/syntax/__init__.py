"""From the text of a CUDA body to its tokens and its tree."""
