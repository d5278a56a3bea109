"""Functions that files of experiments name: values, pictures and rows that the options of a task cannot describe."""
