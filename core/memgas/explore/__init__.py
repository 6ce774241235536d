"""`memgas explore`: a local page that shows a memory, needs no network, and changes nothing unless told so."""
