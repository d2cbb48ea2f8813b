"""The subcommands, one file each: flags in, one call of the library, words out. `labeltrace.cli` puts them together."""
