"""The commands of `publisher`. Each is a module or a folder: rows/ parks, requeues, drops and erases rows; replay/ sends outputs once more.

publisher/cli.py composes the command line.
"""
