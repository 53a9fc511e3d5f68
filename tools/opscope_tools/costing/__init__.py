"""What the tools about costs share: their arguments, the targets they take, shorter forms of long formulas."""
