// Encoders puts klauspost/reedsolomon behind the protocol of foreign/README.md.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/klauspost/reedsolomon"
)

var options = map[string][]reedsolomon.Option{
	"klauspost":          nil,
	"klauspost-cauchy":   {reedsolomon.WithCauchyMatrix()},
	"klauspost-jerasure": {reedsolomon.WithJerasureMatrix()},
	"klauspost-par1":     {reedsolomon.WithPAR1Matrix()},
}

func main() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		var name string
		var k, m, bytes int
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return
		}
		if _, err := fmt.Sscanf(line, "%s %d %d %d\n", &name, &k, &m, &bytes); err != nil {
			log.Fatalf("a request that makes no sense: %q: %v", line, err)
		}
		blocks := make([][]byte, k+m)
		for i := range blocks {
			blocks[i] = make([]byte, bytes)
			if i < k {
				if _, err := io.ReadFull(in, blocks[i]); err != nil {
					log.Fatalf("a request that ends early: %v", err)
				}
			}
		}
		if err := encode(name, k, m, blocks); err != nil {
			fmt.Fprintf(out, "error %v\n", err)
		} else {
			fmt.Fprintln(out, "ok")
			for _, block := range blocks[k:] {
				out.Write(block)
			}
		}
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
}

func encode(name string, k, m int, blocks [][]byte) error {
	chosen, ok := options[name]
	if !ok {
		return fmt.Errorf("no encoder %s", name)
	}
	encoder, err := reedsolomon.New(k, m, chosen...)
	if err != nil {
		return err
	}
	return encoder.Encode(blocks)
}
