"""What is not interpreted but known: functions by their qualified names, and what torch gives its modules."""
