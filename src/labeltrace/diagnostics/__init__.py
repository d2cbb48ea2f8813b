"""The paper's measurements: where noise enters a network, when a pseudo target lies, what relation drift adds.

Pure functions on tensors, one file per family; `runs` takes run folders, `figures` draws.
"""
