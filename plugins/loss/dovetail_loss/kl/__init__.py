"""Estimators of KL(π || π_ref), one file each; the claims of each say whether value and gradient are unbiased."""
