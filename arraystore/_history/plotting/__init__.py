"""Pictures made with matplotlib: chunk maps, histories, differences."""
