// Command tokens counts tokens: a JSON array of strings on its standard input
// becomes one of numbers on its standard output. The vocabulary is o200k_base,
// which is in the program.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/tiktoken-go/tokenizer"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return fmt.Errorf("standard input must be a JSON array of strings: %w", err)
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		return fmt.Errorf("loading the vocabulary: %w", err)
	}
	counts := make([]int, len(texts))
	for i, text := range texts {
		ids, _, err := codec.Encode(text)
		if err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
		counts[i] = len(ids)
	}
	return json.NewEncoder(os.Stdout).Encode(counts)
}
