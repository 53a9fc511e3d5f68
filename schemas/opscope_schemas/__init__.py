"""The vocabulary that engines, server, clients and reports share; imports nothing of ours."""
