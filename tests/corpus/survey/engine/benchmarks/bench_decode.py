import argparse

if __name__ == "__main__":
    argparse.ArgumentParser().add_argument("--rounds")
