"""`dovetail plugin mutants`: what of a component could be otherwise without its examples showing it."""
