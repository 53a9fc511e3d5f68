"""What a test says that a machine refuses it, as a kernel without a performance counter does: no defect of the checkout."""

#: how the reason of such a skip begins
CANNOT = "cannot here: "
