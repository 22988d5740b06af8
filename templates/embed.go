// Package templates holds the recipes that come with PandaStack. The command
// line builds them by name; package template reads them.
package templates

import "embed"

// Recipes has a folder for each recipe.
//
//go:embed base code-interpreter
var Recipes embed.FS
