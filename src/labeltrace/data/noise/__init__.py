"""Label noise: how wrong labels are made, and the file in which they are kept so that every method gets the same."""
