"""What the names that users give mean: classes, auto classes, configurations; and what a reader must know of a class."""
