"""People's verdicts on outputs and documents: how far scores, judges and labels agree with them."""
