package preview

// HoldsToken tells whether something like a token is in a text.
var HoldsToken = tokenForm.MatchString
