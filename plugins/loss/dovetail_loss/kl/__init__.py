"""Estimators of KL(π || π_ref), one file each; `declares` on the function says what is unbiased."""
