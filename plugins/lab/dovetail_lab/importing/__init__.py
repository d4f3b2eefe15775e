"""`dovetail import-config`: a gin file from the settings of TRL, verl or tunix."""
