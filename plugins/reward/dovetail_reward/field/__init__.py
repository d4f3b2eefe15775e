"""Fields that reward shapings read, one file each."""
