"""What to expect: one model of a step, fitted to what others have published.

`question` reads what somebody asks, `step` says which bytes, layers and links a step passes, `fit` how fast
hardware and engines pass them, `cases` which published rows it learns from, `nearest` what measured curves
add, `answer` what a reader gets, `columns` whole tables of answers,
`prices` what tokens cost, `backwards` which accelerators or models answer to a goal, and `proof` how far
answers are off for sources that were left out."""
