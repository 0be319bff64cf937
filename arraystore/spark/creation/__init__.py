"""Making arrays and coordinates from the schema and the labels of a DataFrame."""
