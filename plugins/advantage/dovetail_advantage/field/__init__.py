"""Fields that some of the estimators read, one file each."""
