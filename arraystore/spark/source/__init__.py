"""The data source: ``format("arraystore")``, a face over the rest."""
