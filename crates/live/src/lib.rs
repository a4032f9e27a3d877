//! The live switch: real ports, workers that share a rule set, OpenFlow control.
