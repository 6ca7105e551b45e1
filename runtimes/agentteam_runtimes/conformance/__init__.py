"""The conformance kit: what a driver promises, tried on the driver alone."""
