from setuptools import setup

setup(name="shelf", packages=["shelf"], entry_points={"console_scripts": ["shelf = shelf.main:cli"]})
